"""The named sets: who publishes them, what they hold, what one may do with them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fedpn.data.sources import formats
from fedpn.data.sources.class_names import CIFAR100, DIGITS, MERGED

ORGANS = (
    "bladder",
    "femur-left",
    "femur-right",
    "heart",
    "kidney-left",
    "kidney-right",
    "liver",
    "lung-left",
    "lung-right",
    "pancreas",
    "spleen",
)
PART_NAMES = {"train": "training", "val": "validation", "test": "test"}


@dataclass(frozen=True)
class Publisher:
    """Where a set comes from, and what a whole copy of it holds."""

    url: str  # the files lie below it
    files: Mapping[str, str]  # name -> md5
    read: formats.Reader
    rows: Mapping[str, int]  # by part
    image: tuple[int, int, int]  # channels, height, width
    classes: tuple[str, ...]
    licence: str
    leak: str = ""  # what may part between training and test rows although it belongs together
    packaged: tuple[Path, ...] = field(default=())  # where operating systems keep the same files

    def shortfall(self, rows: Mapping[str, int]) -> str:
        """Says how much of the set a file lacks.

        >>> PUBLISHERS["cifar10"].shortfall({"train": 25000, "test": 10000})
        'a subset: 25000 of 50000 training rows, all 10000 test rows'
        """
        if all(rows.get(part, 0) == whole for part, whole in self.rows.items()):
            return ""
        held = [
            f"all {whole} {PART_NAMES[part]} rows"
            if rows.get(part, 0) == whole
            else f"{rows.get(part, 0)} of {whole} {PART_NAMES[part]} rows"
            for part, whole in self.rows.items()
        ]
        return "a subset: " + ", ".join(held)


def _medmnist(
    name: str,
    md5: str,
    rows: tuple[int, int, int],
    classes: tuple[str, ...] = ORGANS,
    source: str = "Bilic et al. 2023; Xu et al. 2019",
    leak: str = "slices of one patient may part between training and test rows",
) -> Publisher:
    return Publisher(
        url="https://zenodo.org/records/10519652/files",
        files={f"{name}.npz": md5},
        read=formats.medmnist,
        rows=dict(zip(PART_NAMES, rows, strict=True)),
        image=(1, 28, 28),
        classes=classes,
        licence=f"CC BY 4.0 (MedMNIST; {source})",
        leak=leak,
    )


PUBLISHERS: dict[str, Publisher] = {
    "mnist": Publisher(
        url="https://ossci-datasets.s3.amazonaws.com/mnist",
        files={
            "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
        },
        read=formats.idx,
        rows={"train": 60000, "test": 10000},
        image=(1, 28, 28),
        classes=DIGITS,
        licence="CC BY-SA 3.0 (LeCun, Cortes, Burges)",
    ),
    "fashionmnist": Publisher(
        url="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
        files={
            "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
        },
        read=formats.idx,
        rows={"train": 60000, "test": 10000},
        image=(1, 28, 28),
        classes=(
            "T-shirt/top",
            "trouser",
            "pullover",
            "dress",
            "coat",
            "sandal",
            "shirt",
            "sneaker",
            "bag",
            "ankle boot",
        ),
        licence="MIT (Zalando SE)",
        packaged=(Path("/usr/share/datasets/fashion-mnist"),),  # Debian's dataset-fashion-mnist
    ),
    "organamnist": _medmnist(
        "organamnist", "68e3f8846a6bd62f0c9bf841c0d9eacc", (34561, 6491, 17778)
    ),
    "organcmnist": _medmnist(
        "organcmnist", "b9ceb9546e10131b32923c5bbeaea2b1", (12975, 2392, 8216)
    ),
    "organsmnist": _medmnist(
        "organsmnist", "9ab87b696fb54e2a387ebe992d6ed5f1", (13932, 2452, 8827)
    ),
    "pneumoniamnist": _medmnist(
        "pneumoniamnist",
        "28209eda62fecd6e6a2d98b1501bb15f",
        (4708, 524, 624),
        classes=("normal", "pneumonia"),
        source="Kermany et al. 2018",
        leak="pictures of one patient may part between training and test rows",
    ),
    "cifar10": Publisher(
        url="https://www.cs.toronto.edu/~kriz",
        files={"cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530"},
        read=formats.cifar,
        rows={"train": 50000, "test": 10000},
        image=(3, 32, 32),
        classes=(
            "airplane",
            "automobile",
            "bird",
            "cat",
            "deer",
            "dog",
            "frog",
            "horse",
            "ship",
            "truck",
        ),
        licence="none stated; published for research, cite Krizhevsky 2009",
    ),
    "cifar100": Publisher(
        url="https://www.cs.toronto.edu/~kriz",
        files={"cifar-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8"},
        read=formats.cifar100,
        rows={"train": 50000, "test": 10000},
        image=(3, 32, 32),
        classes=CIFAR100,
        licence="none stated; published for research, cite Krizhevsky 2009",
    ),
    "emnist": Publisher(
        url="https://biometrics.nist.gov/cs_links/EMNIST",
        files={"gzip.zip": "58c8d27c78d21e728a6bc7b3cc06412e"},
        read=formats.emnist,
        rows={"train": 112800, "test": 18800},
        image=(1, 28, 28),
        classes=MERGED,
        licence="none stated; derived from NIST Special Database 19, cite Cohen et al. 2017",
        leak="characters of one writer may part between training and test rows",
    ),
    "svhn": Publisher(
        url="http://ufldl.stanford.edu/housenumbers",
        files={
            "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
            "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
        },
        read=formats.svhn,
        rows={"train": 73257, "test": 26032},
        image=(3, 32, 32),
        classes=DIGITS,
        licence="non-commercial use only (Netzer et al. 2011)",
        leak="crops of one photograph may part between training and test rows",
    ),
}
