"""Message passing layers over trees."""

from hsa_geo.nn.conv.hsa_conv import HSAConv

__all__ = ["HSAConv"]
