"""How much personal data detection finds in labelled texts, against a baseline and the goals.

Runs every layer in this process, and the second look over what they leave. DATA_DIR holds the four labelled files;
they are not part of this repository. Exit status: 0 good; 1 a figure fell by more than one point against the baseline,
or a goal is missed; 2 there is nothing to measure on. CPU time is printed and judged by `bench/masking.py`, not here.

Goals and baseline are for all layers together: with `--layers` the table alone is printed.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.lib import masking_scores as scoring
from weighbridge.config.folders import models_folder
from weighbridge.masking.detector import Detector
from weighbridge.masking.layers.base import LayerOptions
from weighbridge.masking.layers.registry import OPTIONAL
from weighbridge.masking.models import ENGLISH

_OWN_MODEL = "local-model"
BASELINE = Path(__file__).with_name("masking_baseline.json")


def main() -> None:
    args = _arguments()
    gone = [one.file for one in scoring.FILES if not (args.data / one.file).is_file()]
    if gone:
        print(f"{args.data} does not hold {', '.join(gone)}: nothing to measure on", file=sys.stderr)
        raise SystemExit(2)
    # As in a detector process: spaCy's machinery takes torch when it is installed.
    for name in ("torch", "transformers"):
        sys.modules[name] = None  # type: ignore[assignment]
    wanted = args.layers or [name for name in OPTIONAL if name != _OWN_MODEL or args.local_model]
    options = LayerOptions(models_dir=str(args.models_dir), local_model=str(args.local_model or ""))
    detector = Detector(wanted, options)
    print(f"layers: {', '.join(detector.layers)}")
    for name, why in detector.missing.items():
        print(f"MISSING layer {name}: {why}")
    print(f"names of people are found in: {', '.join(sorted(detector.names)) or 'no language'}")
    print(f"version: {detector.version}")
    figures: dict[str, dict[str, float]] = {}
    for labelled in scoring.FILES:
        scores = scoring.score(detector.find, labelled, scoring.read(args.data / labelled.file))
        figures[labelled.file] = scores.figures(labelled)
        print(f"\n{scoring.table(labelled, scores)}", flush=True)
    if args.layers:
        print("\n--layers was given: no goals, no baseline.")
        return
    large = ENGLISH.name in detector.version
    bad = _goals(figures, large)
    if args.write_baseline:
        document = {"english_model": _model(large), "missing": sorted(detector.missing), "figures": figures}
        args.baseline.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        print(f"\nbaseline written to {args.baseline}")
    else:
        bad += _baseline(args.baseline, figures, large)
    raise SystemExit(1 if bad else 0)


def _model(large: bool) -> str:
    return "md" if large else "sm"


def _goals(figures: dict[str, dict[str, float]], large: bool) -> int:
    print()
    missed = 0
    for goal in scoring.goals(large_english_model=large):
        value = figures[goal.labelled.file].get(goal.figure, 0.0)
        wrong = goal.missed(value)
        missed += wrong
        print(f"{'MISSED' if wrong else 'goal  '} {goal}: {value:.3f}")
    return missed


def _baseline(path: Path, figures: dict[str, dict[str, float]], large: bool) -> int:
    if not path.is_file():
        print(f"no baseline at {path}: nothing to compare with; --write-baseline makes one", file=sys.stderr)
        raise SystemExit(2)
    document = json.loads(path.read_text(encoding="utf-8"))
    if document["english_model"] != _model(large):
        print(
            f"NOT COMPARED with the baseline: it was made with the {document['english_model']} English model, this is "
            f"{_model(large)}"
        )
        return 0
    fallen = scoring.drops(figures, document["figures"])
    for sentence in fallen:
        print(f"WORSE  {sentence}")
    if not fallen:
        print("no figure is worse than the baseline by more than one point")
    return len(fallen)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, metavar="DATA_DIR", help="folder with the labelled files")
    parser.add_argument(
        "--layers", nargs="+", choices=list(OPTIONAL), help="only these beyond the ones that always look"
    )
    parser.add_argument(
        "--models-dir", type=Path, default=models_folder(), help="folder of the fetched models"
    )
    parser.add_argument("--local-model", type=Path, help="folder of a spaCy model for the layer local-model")
    parser.add_argument("--baseline", type=Path, default=BASELINE, help="figures to compare with")
    parser.add_argument(
        "--write-baseline", action="store_true", help="write the baseline instead of comparing"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
