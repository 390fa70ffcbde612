"""HSA inside a pretrained encoder of pictures, without training: what it saves and what it costs.

    python examples/zero_shot_pictures.py            # accuracy of a probe, with every setting
    python examples/zero_shot_pictures.py --race     # seconds of the whole model, side by side
    python examples/zero_shot_pictures.py --quick

Pictures of 518 by 518 pixels are 1,369 patches for DINOv2.  A logistic regression on the class
token of the unmodified model learns the categories of drawings and photos (the stamps of Tux
Paint); then attention of some layers goes over squares of patches, or over clusters of patches
with like keys, nothing is trained again, and the probe is asked about other pictures.  Rivals at
the same cost are local windows, and mean-pooled keys without the theorem.  What was computed is
kept, and a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import torch
from comparison import exit_code, positive, recipe_key
from comparison_statistics import Hits
from PIL import Image
from rich.console import Console
from rich.progress import track
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from zero_shot_encoding import Counter, Outcome, Setting, attending, named
from zero_shot_race import raced
from zero_shot_race import save as save_race
from zero_shot_race import show as show_race
from zero_shot_rivals import RIVALS
from zero_shot_table import row_of, save, show

import hsa_geo
from hsa_geo._files import replacing
from hsa_geo.datasets import Archive, DINOv2

LAYERS = 12
STAMPS = Archive(
    "deb",
    "tuxpaint-stamps-default",
    "2022.06.04-1",
    "tuxpaint-stamps-default_2022.06.04-1_all.deb",
    sha256="6db6c1bfc870a47f1499d6203b083522eacb57c5f9c87d468f2e92eb6d9d5f34",
    prefix="usr/share/tuxpaint/stamps",
    patterns=("**/*.png",),
    size=160880444,
)
#: Categories with fewer pictures are left out, and of others so many are drawn.
LEAST, MOST = 30, 32
THREE, ALTERNATE, ALL = (7, 9, 11), tuple(range(1, 12, 2)), tuple(range(12))
SETTINGS = [
    Setting(layers, kind, window, grouping)
    for kind, window, grouping in (
        ("key", 16, "clusters"),
        ("key", 4, "squares"),
        ("key", 2, "squares"),
        ("block", 4, "squares"),
        ("local", 4, "squares"),
        ("pooled", 4, "squares"),
    )
    for layers in (THREE, ALTERNATE, ALL)
]
STRENGTHS = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 1.0)


def main(args: list[str] | None = None) -> int:
    """Parse the command line and go."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--root", type=Path, default=Path("data"), help="where data are kept")
    parser.add_argument("--out", type=Path, default=Path("runs/zero_shot"))
    parser.add_argument("--size", type=positive, default=518, help="pixels (default: %(default)s)")
    parser.add_argument("--test", type=positive, default=80, help="pictures to test with")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="of settings, as files are named")
    parser.add_argument("--threads", type=positive, help="of torch")
    parser.add_argument("--race", action="store_true", help="measure seconds, not accuracy")
    parser.add_argument("--rounds", type=positive, default=5, help="of the race")
    parser.add_argument("--quick", action="store_true", help="few pictures, few settings")
    given = parser.parse_args(args)
    if given.quick:
        given.test, given.rounds = min(given.test, 8), 1
    console = Console(markup=False, emoji=False, highlight=False)
    if not console.is_terminal:
        console.width = 160
    return exit_code(lambda: (race if given.race else run)(given, console))


def run(given: argparse.Namespace, console: Console) -> None:
    """Encode with every setting, ask the probe, print and keep the table."""
    begin, settings = time.perf_counter(), settings_of(given)
    encoder, (files, labels) = set_up(given)
    train, test = parts(labels, given.test)
    names = [str(file.relative_to(given.root)) for file in files]
    cache = given.out / f"stamps_{given.size}" / recipe_key(names, hsa_geo.__version__)
    if given.quick:
        train = train[::4]
    known = features(encoder, None, files, train, cache)
    base = features(encoder, None, files, test, cache)
    probe = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    probe = GridSearchCV(probe, {"logisticregression__C": STRENGTHS}, cv=5)
    probe.fit(known.vectors, labels[train])

    def hits(found: Outcome) -> Hits:
        right = probe.predict(found.vectors) == labels[test]
        return Hits(right.astype(float)[None], np.arange(len(test)), (0,))

    def nearest(found: Outcome) -> np.ndarray:
        return (found.vectors @ known.vectors.T).argmax(1)

    title = f"{len(test)} stamps of {given.size} pixels in {len(set(labels))} categories"
    title += f", the probe trained on {len(train)} others"
    rows = []
    for setting in [None, *settings]:
        found = features(encoder, setting, files, test, cache)
        pairs = (hits(found), hits(base), nearest(found), nearest(base))
        rows.append(row_of(setting, found, base, *pairs, LAYERS))
        if setting is not None:
            said = f"{setting.title}, {len(setting.layers)} layers: {rows[-1].accuracy:.3f}"
            console.print(f"{said}, {time.perf_counter() - begin:.0f} s")
        seconds = time.perf_counter() - begin
        save(given.out / "pictures.json", rows, "stamps", title, seconds)
    show(rows, title, console)


def race(given: argparse.Namespace, console: Console) -> None:
    """Time every setting on one picture, print and keep the table."""
    settings = [setting for setting in settings_of(given) if setting.kind not in RIVALS]
    encoder, (files, _) = set_up(given)
    pixels = encoder.pixels([opened(files[0])])
    laps = raced(
        *(encoder.module, settings, ()),
        lambda: encoder.module(pixel_values=pixels),
        given.rounds,
    )
    title = f"a picture of {given.size} pixels, threads: {torch.get_num_threads()}"
    title += f", rounds: {given.rounds}"
    show_race(laps, title, LAYERS, console)
    save_race(given.out / "pictures_race.json", laps, title, LAYERS)


def set_up(given: argparse.Namespace) -> tuple[DINOv2, tuple[list[Path], np.ndarray]]:
    """The encoder, and the pictures with their labels."""
    if given.threads:
        torch.set_num_threads(given.threads)
    return DINOv2(given.root / "dinov2", size=given.size), stamps(given.root / "stamps")


def settings_of(given: argparse.Namespace) -> list[Setting]:
    """What is compared."""
    quick = ["key-squares4-layers7911", "local-squares4-layers01234567891011"]
    return named(SETTINGS, quick if given.quick else given.only)


def stamps(root: Path) -> tuple[list[Path], np.ndarray]:
    """Files of pictures, and numbers of their categories."""
    folder = STAMPS.unpacked(root / "raw", log=True)
    rng = np.random.default_rng(0)
    files: list[Path] = []
    labels: list[int] = []
    kinds = [sorted(kind.rglob("*.png")) for kind in sorted(folder.iterdir()) if kind.is_dir()]
    for label, kind in enumerate(kind for kind in kinds if len(kind) >= LEAST):
        chosen = sorted(rng.permutation(len(kind))[:MOST])
        files += [kind[i] for i in chosen]
        labels += [label] * len(chosen)
    return files, np.array(labels)


def parts(labels: np.ndarray, test: int) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of pictures for training and test, of every category its share."""
    order = np.random.default_rng(1).permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]  # mixed within every category
    place = np.arange(len(order)) * test // len(order)
    chosen = np.r_[True, place[1:] != place[:-1]]  # evenly spread over the categories
    return np.sort(order[~chosen]), np.sort(order[chosen])


def opened(file: Path) -> Image.Image:
    """A picture, whole in memory."""
    with Image.open(file) as picture:
        return picture.copy()


def features(
    encoder: DINOv2, setting: Setting | None, files: list[Path], rows: np.ndarray, cache: Path
) -> Outcome:
    """Class tokens of pictures, of length 1, and operations; those that are kept are not made."""
    name = "unmodified" if setting is None else setting.name
    path = cache / f"{name}.npz"
    vectors, cost = np.full((len(files), encoder.dim), np.nan), np.zeros((len(files), 2))
    if path.is_file():
        with np.load(path, allow_pickle=False) as kept:
            vectors, cost = kept["vectors"], kept["cost"]
    missing = [int(i) for i in rows if np.isnan(vectors[i, 0])]
    cache.mkdir(parents=True, exist_ok=True)
    for i in track(missing, name, disable=not missing):
        counter, picture = Counter(), opened(files[i])
        with attending(encoder.module, setting, (), counter):
            found = encoder.features([picture])
        vectors[i] = torch.nn.functional.normalize(found, dim=1)[0]
        cost[i] = counter.flat, counter.replaced
        with replacing(path) as new, open(new, "wb") as file:
            np.savez(file, vectors=vectors, cost=cost)
    flat, replaced = cost[rows].sum(0)
    return Outcome(vectors[rows], int(flat), int(replaced))


if __name__ == "__main__":
    sys.exit(main())
