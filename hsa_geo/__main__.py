"""``python -m hsa_geo``: the command ``hsa-geo`` where it is not on the path."""

from hsa_geo.cli import main

if __name__ == "__main__":
    main()
