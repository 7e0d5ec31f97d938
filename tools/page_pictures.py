"""Takes the pictures of the pages that the docs show: small real runs, and a headless browser.

`make pictures` writes docs/images. All pictures, every page at 1400 and 390 pixels in light and dark, go to --all.
A run that is in --work already is not made again. From scratch it takes about twelve minutes.
"""

from __future__ import annotations

import argparse
import csv
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path

from PIL import Image

REPOSITORY = Path(__file__).parents[1]
IMAGES = REPOSITORY / "docs" / "images"
WIDE, PHONE = 1400, 390
MOST_BYTES = 200_000
COLOURS = 96
LIVE = "live"
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
SHOWN = {
    ("training", WIDE, False): 1500,
    ("training", PHONE, True): 1100,
    ("audit", WIDE, False): 1500,
    ("audit", PHONE, False): 1100,
    ("audit", WIDE, True): 1000,
    ("discovery", WIDE, False): 1250,
    ("discovery", PHONE, True): 1100,
    ("discovery-audit", WIDE, False): 1250,
    ("frontier", WIDE, False): 1300,
    ("comparison", WIDE, False): 1150,
    ("reproduction", WIDE, False): 1150,
    (LIVE, WIDE, False): 1050,
}
"""The pictures of the docs: page, width, dark; and how much of the page is shown, in pixels from its top."""
QUICK = ("--quick", "--attacks", "inverse")
JOB = """
name = "clinic"

[data]
name = "csv"
label = "diagnosis"
id = "patient"

[parties]
active = "clinic"
passive = ["lab"]

[partition]
active_has_features = true

[party.clinic.data]
path = "clinic.csv"

[party.lab.data]
path = "lab.csv"

[model]
name = "mlp"

[training]
epochs = 30
batch_size = 64
baselines = ["active_only"]
"""


DIGITS = """
name = "digits"

[data]
name = "digits"

[model]
name = "convnet"
cut = 3

[training]
epochs = 12
batch_size = 128
"""


def main() -> None:
    """Make the runs, take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, help="where the runs lie; default: a folder that is removed again")
    parser.add_argument("--all", type=Path, help="where all pictures go, whole pages among them")
    parser.add_argument("--only", nargs="*", help="these pages alone")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        work = (given.work or Path(scratch) / "work").resolve()
        work.mkdir(parents=True, exist_ok=True)
        write_tables(work)
        for name, make in PAGES.items():
            if given.only and name not in given.only:
                continue
            page = make(work)
            take(name, f"file://{page}", Path(scratch), given.all)
        if not given.only or LIVE in given.only:
            take_live(work, Path(scratch), given.all)


def write_tables(work: Path) -> None:
    """Real people in two files: a clinic has the diagnosis and ten measurements, a laboratory has twenty others."""
    from sklearn.datasets import load_breast_cancer

    told = load_breast_cancer()
    names = [name.replace(" ", "_") for name in told.feature_names]
    for party, columns in (("clinic", range(10)), ("lab", range(10, 30))):
        own = [names[at] for at in columns]
        with (work / f"{party}.csv").open("w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["patient", *(["diagnosis"] if party == "clinic" else []), *own])
            for number, (row, label) in enumerate(zip(told.data, told.target, strict=True)):
                answer = [told.target_names[label]] if party == "clinic" else []
                table.writerow([f"p{number}", *answer, *(row[at] for at in columns)])
    (work / "clinic.toml").write_text(JOB.lstrip())
    (work / "digits.toml").write_text(DIGITS.lstrip())


def command(*arguments: str) -> list[str]:
    """The command line of these words."""
    print("veracausa", *arguments, flush=True)
    return [sys.executable, "-m", "veracausa.cli.main", *arguments]


def made(page: str, *arguments: str) -> Callable[[Path], Path]:
    """How to get a page: run the command; if the run is there, only write its page again."""

    def make(work: Path) -> Path:
        run = Path(page).parent
        if (work / page).is_file() and (work / run / "summary.json").is_file() and run.name != "audit":
            subprocess.run(command("report", str(run)), cwd=work, check=True, stdout=subprocess.DEVNULL)
        elif not (work / page).is_file() or page == "comparison.html":
            subprocess.run(command(*arguments), cwd=work, check=True, stdout=subprocess.DEVNULL)
        return work / page

    return make


def discovery(work: Path) -> Path:
    if not (work / "patients.csv").is_file():
        subprocess.run(command("discover", "--example"), cwd=work, check=True, stdout=subprocess.DEVNULL)
    parties = ("--party", "hospital=age,bmi,dose", "--party", "lab=crp,hba1c,ldl")
    truth = ("--truth", "patients_edges.csv", "--out", "runs/patients")
    return made("runs/patients/report.html", "discover", "patients.csv", *parties, *truth)(work)


def discovery_audit(work: Path) -> Path:
    discovery(work)
    return made("runs/patients/audit/report.html", "audit", "runs/patients")(work)


def comparison(work: Path) -> Path:
    made("runs/plain/report.html", "audit", "digits.toml", *QUICK, "--out", "runs/plain")(work)
    defended = ("--set", "defense.name=noisy_bottleneck", "--baseline", "runs/plain", "--out", "runs/noisy")
    made("runs/noisy/report.html", "audit", "digits.toml", *QUICK, *defended)(work)
    return made("comparison.html", "report", "runs/plain", "runs/noisy")(work)


PAGES: dict[str, Callable[[Path], Path]] = {
    "training": made("runs/clinic/report.html", "train", "clinic.toml", "--out", "runs/clinic"),
    "audit": made("runs/audited/report.html", "audit", "clinic.toml", *QUICK, "--out", "runs/audited"),
    "discovery": discovery,
    "discovery-audit": discovery_audit,
    "frontier": made(
        "runs/frontier/frontier.html",
        *("frontier", "digits.toml", "--defenses", "noisy_bottleneck,prune", "--quick", "--budget", "6m"),
        *("--victims", "300", "--auxiliary", "300", "--out", "runs/frontier"),
    ),
    "comparison": comparison,
    "reproduction": made(
        "results/causshield/table2/smoke/report.html", "reproduce", "causshield/table2", "--scale", "smoke"
    ),
}


def take(name: str, address: str, scratch: Path, everything: Path | None) -> None:
    """The pictures of one page."""
    for width in (WIDE, PHONE):
        for dark in (False, True):
            shown = SHOWN.get((name, width, dark))
            if shown:
                keep(photograph(address, width, shown, dark, scratch), IMAGES / f"{file_name(name, width, dark)}.png")
            if everything is not None:
                tall = 4200 if width == WIDE else 7000
                picture = trimmed(photograph(address, width, tall, dark, scratch))
                everything.mkdir(parents=True, exist_ok=True)
                picture.save(everything / f"{name}-{width}{'-dark' if dark else ''}.png")


def take_live(work: Path, scratch: Path, everything: Path | None) -> None:
    """The page of a run that runs, and the end of that run."""
    words = ("train", "clinic.toml", "--watch", "--set", "training.epochs=600", "--out", "runs/watched")
    shutil.rmtree(work / "runs" / "watched", ignore_errors=True)
    run = subprocess.Popen(command(*words), cwd=work, stderr=subprocess.PIPE, text=True)
    try:
        assert run.stderr is not None
        address = next(found[0] for line in run.stderr if (found := re.search(r"http://\S+", line)))
        time.sleep(20)
        take(LIVE, address, scratch, everything)
    finally:
        run.send_signal(signal.SIGINT)
        run.wait(60)


def file_name(name: str, width: int, dark: bool) -> str:
    return f"page-{name}{'-phone' if width == PHONE else ''}{'-dark' if dark else ''}"


def photograph(address: str, width: int, height: int, dark: bool, scratch: Path) -> Image.Image:
    """The top of a page. A window has a smallest width, so a narrow page stands in a frame."""
    browser = next(filter(None, map(shutil.which, CHROMIUM)), None)
    if browser is None:
        raise SystemExit("needs chromium")
    picture, profile = scratch / "page.png", tempfile.mkdtemp(dir=scratch)
    where = address
    if width == PHONE and not address.startswith("file:"):
        # A run that runs lets nobody frame its page: what it shows now is put into a file, without its script.
        still = scratch / "still.html"
        with urllib.request.urlopen(address, timeout=10) as answer:
            still.write_text(re.sub(r"<script>.*?</script>", "", answer.read().decode(), flags=re.DOTALL))
        address = still.as_uri()
    if width == PHONE:
        frame = scratch / "frame.html"
        style = f"width:{width}px;height:{height}px;border:0"
        frame.write_text(f'<body style="margin:0"><iframe src="{address}" style="{style}"></iframe></body>')
        where = frame.as_uri()
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"]
    options += ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--timeout=4000"]
    options += [f"--user-data-dir={profile}", f"--window-size={max(width, 500)},{height}", f"--screenshot={picture}"]
    options += ["--force-dark-mode"] if dark else []
    subprocess.run([browser, *options, where], check=True, capture_output=True, timeout=120)
    return Image.open(picture).convert("RGB").crop((0, 0, width, height))


def trimmed(picture: Image.Image) -> Image.Image:
    """The picture without the empty paper at its end."""
    paper = picture.getpixel((0, picture.height - 1))
    rows = picture.convert("L").resize((1, picture.height), Image.Resampling.BOX).load()
    plain = Image.new("RGB", (1, 1), paper).convert("L").getpixel((0, 0))
    last = next((y for y in range(picture.height - 1, 0, -1) if rows[0, y] != plain), picture.height - 1)
    return picture.crop((0, 0, picture.width, min(picture.height, last + 40)))


def keep(picture: Image.Image, path: Path) -> None:
    """Write it with few colours, which is enough for text and lines."""
    path.parent.mkdir(exist_ok=True)
    # The usual way gives nearly all colours to the shades of letters, and two lines of a plot become one colour.
    few = picture.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(path, optimize=True)
    size = path.stat().st_size
    print(f"{path.relative_to(REPOSITORY)}: {size / 1000:.0f} kB", flush=True)
    if size >= MOST_BYTES:
        raise SystemExit(f"{path}: {size} bytes are too many; show less of the page")


def unused(names: Sequence[str]) -> list[str]:
    """Pictures of pages that no document shows."""
    text = "".join(page.read_text(encoding="utf-8") for page in (REPOSITORY / "docs").rglob("*.md"))
    return [name for name in names if f"images/{name}.png" not in text]


if __name__ == "__main__":
    main()
    if left := unused([file_name(*key) for key in SHOWN]):
        print(f"shown nowhere in docs/: {', '.join(left)}")
