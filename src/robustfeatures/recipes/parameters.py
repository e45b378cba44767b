"""The parameters of each stage: what a result depends on, and nothing else.

Fields are validated where a study is read; every field enters the digest of the recipe that holds it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt, MinLen
from pydantic import Discriminator, StringConstraints

from robustfeatures.recipes.adversaries import Attacks
from robustfeatures.recipes.strict import Strict as Strict

# Names become parts of file names and of commands.
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=80)]
# Class names are the source's own and may hold anything but line breaks.
ClassName = Annotated[str, StringConstraints(pattern=r"^[^\r\n]+$", max_length=200)]
Fraction = Annotated[float, Gt(0), Lt(1)]
Radius = Annotated[float, Ge(0)]
PositiveInt = Annotated[int, Gt(0)]
PositiveFloat = Annotated[float, Gt(0)]
Target = Literal["random", "next"] | Annotated[int, Ge(0)]
Seed = Annotated[int, Ge(0)]
NormName = Literal["l2", "linf"]
Split = Literal["train", "validation", "test"]
Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True, kw_only=True)
class KeepClasses(Strict):
    """Only the named classes, numbered anew in the order given."""

    kind: Literal["classes"]
    keep: Annotated[tuple[ClassName, ...], MinLen(1)]


@dataclass(frozen=True, kw_only=True)
class MergeClasses(Strict):
    """New classes, each of one or several old ones, in the order of their first old class; the rest is dropped."""

    kind: Literal["merge"]
    groups: Annotated[Mapping[ClassName, Annotated[tuple[ClassName, ...], MinLen(1)]], MinLen(1)]


@dataclass(frozen=True, kw_only=True)
class Relabel(Strict):
    """Images of one class take the label of another; the list of classes stays as it is."""

    kind: Literal["relabel"]
    mapping: Annotated[Mapping[ClassName, ClassName], MinLen(1)]


@dataclass(frozen=True, kw_only=True)
class Subset(Strict):
    """`samples` images of one split, drawn stratified by class, or with `rest` all others of it.

    The other splits stay as they are.
    """

    kind: Literal["subset"]
    split: Split
    samples: PositiveInt
    seed: Seed = 0
    rest: bool = False


@dataclass(frozen=True, kw_only=True)
class Listed(Strict):
    """Only the images that a text file lists, one index or file name a line; `#` begins a comment.

    The list lies at `path`, and its SHA-256 says what it holds. An index counts from 0 in the source's own split
    (`train` or `test` as published, or `all` where it has none), which `split` names; images of the source's other
    splits are kept.
    """

    kind: Literal["listed"]
    path: str
    sha256: str | None = None
    split: Literal["train", "validation", "test", "all"] = "all"


@dataclass(frozen=True, kw_only=True)
class Named(Strict):
    """Only the images whose file name matches a shell pattern."""

    kind: Literal["named"]
    pattern: str


@dataclass(frozen=True, kw_only=True)
class Concatenate(Strict):
    """Another data set after this one, split by split; both must have the same classes and the same image shape."""

    kind: Literal["concatenate"]
    data: Data


Operation = Annotated[
    KeepClasses | MergeClasses | Relabel | Subset | Listed | Named | Concatenate, Discriminator("kind")
]


@dataclass(frozen=True, kw_only=True)
class Data(Strict):
    """Raw images in their canonical form.

    A source brings its own splits, or one pool of images. `test` is the share of the pool that is drawn for testing, or
    of the source's train split where it brings no test split; `validation` the same for validation; both are stratified
    by class. The user's own files lie at `path`, which is no part of what they are: their SHA-256 is.
    `size` resizes the shorter side of each image, then crops the centre to a square. `operations` follow the split.
    """

    source: str
    validation: Fraction | None = None
    test: Fraction | None = None
    split_seed: Seed = 0
    path: str | None = None
    sha256: str | None = None
    size: PositiveInt | None = None
    skip_unreadable: bool = False
    operations: tuple[Operation, ...] = ()

    def all_sources(self) -> Iterator[Data]:
        """This data set and those that it is concatenated with, at any depth."""
        return (data for data, _ in self.placed_sources(""))

    def placed_sources(self, where: str) -> Iterator[tuple[Data, str]]:
        """The same, each with its field, where this one is in the field `where`."""
        yield self, where
        for number, operation in enumerate(self.operations):
            if isinstance(operation, Concatenate):
                yield from operation.data.placed_sources(f"{where}.operations.{number}.data")


@dataclass(frozen=True, kw_only=True)
class Architecture(Strict):
    """A registered network; `width` is the number of filters of its first stage."""

    name: str
    width: PositiveInt | None = None


@dataclass(frozen=True, kw_only=True)
class Adversary(Strict):
    """The PGD attack inside adversarial training; radii and steps in units of [0, 1] pixels.

    It starts at the image, or with `random_start` at a point drawn uniformly from the ball round it.
    """

    norm: NormName
    eps: Radius
    step_size: PositiveFloat
    steps: PositiveInt
    random_start: bool = False


@dataclass(frozen=True, kw_only=True)
class Augmentation(Strict):
    """Random changes of each training image, drawn anew in every epoch, in the order of the fields.

    `crop_padding` pads by that many zero pixels and crops to the old size; `flip` mirrors half of the images;
    `smallest_crop` cuts out a part of that share of the area or more, 3:4 to 4:3 and clipped to the image, and resizes
    it; `rotation` turns by up to that many degrees; `colour_jitter` scales brightness, contrast and saturation by 1 +-
    that share.
    """

    crop_padding: Annotated[int, Ge(0)] = 0
    flip: bool = False
    smallest_crop: Fraction | None = None
    rotation: Annotated[float, Ge(0), Le(180)] = 0.0
    colour_jitter: Annotated[float, Ge(0), Lt(1)] = 0.0


@dataclass(frozen=True, kw_only=True)
class Training(Strict):
    """Gradient descent on the cross-entropy: stochastic with momentum, or Adam with `momentum` as its first decay.

    The adversary leaves the share `natural` of each batch as it is; with 0.5 that is the half-half training of
    at-odds-2019, Appendix B.
    """

    epochs: PositiveInt
    batch_size: PositiveInt
    learning_rate: PositiveFloat
    momentum: Annotated[float, Ge(0), Lt(1)] = 0.9
    weight_decay: Annotated[float, Ge(0)] = 0.0
    optimiser: Literal["sgd", "adam"] = "sgd"
    schedule: Literal["constant", "one-cycle", "step"] = "one-cycle"
    milestones: tuple[PositiveInt, ...] = ()
    augmentation: Augmentation | None = None
    adversary: Adversary | None = None
    natural: Annotated[float, Ge(0), Lt(1)] = 0.0


@dataclass(frozen=True, kw_only=True)
class ProbeAttack(Adversary):
    """PGD on the network as it is: away from the labels of the probe or, `targeted`, towards them."""

    targeted: bool = False


@dataclass(frozen=True, kw_only=True)
class Probe(Strict):
    """What is taken while a network trains, on one split of one input, with its labels y or (y + label_shift) mod C.

    `measure`: the accuracy, or the performance correlation with a logistic regression of the images trained on. With
    `attack` both are of adversarial examples; the networks in the inputs `transfer_to` are shown the same. The cost is
    bounded by `images` (a draw that is the same for every network; all without) and by `every`: how many epochs lie
    between two takings. The last epoch always has one.
    """

    name: str
    input: str
    split: Split
    label_shift: Annotated[int, Ge(0)] = 0
    measure: Literal["accuracy", "performance-correlation"] = "accuracy"
    attack: ProbeAttack | None = None
    transfer_to: tuple[str, ...] = ()
    images: PositiveInt | None = None
    every: PositiveInt = 1


@dataclass(frozen=True, kw_only=True)
class Model(Strict):
    """A network trained on the train split of its input `data`."""

    architecture: Architecture
    training: Training
    seed: Seed
    precision: Precision = "float32"
    probes: tuple[Probe, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Inversion(Strict):
    """D_R and D_NR: match the representation of the image, from another image or from noise (not-bugs-2019, C.4)."""

    kind: Literal["inversion"]
    start: Literal["images", "noise"]
    step_size: PositiveFloat
    steps: PositiveInt


@dataclass(frozen=True, kw_only=True)
class TargetedAttack(Strict):
    """D_rand and D_det: targeted PGD, relabelled with the target (not-bugs-2019, C.5).

    The target is drawn uniformly ("random"), is (y + 1) mod C ("next"), or is one class for all.
    """

    kind: Literal["targeted-attack"]
    target: Target
    norm: NormName
    eps: Radius
    step_size: PositiveFloat
    steps: PositiveInt


@dataclass(frozen=True, kw_only=True)
class UntargetedAttack(Strict):
    """PGD away from the label, which stays; with a large radius, the examples of at-odds-2019, Section 3."""

    kind: Literal["untargeted-attack"]
    norm: NormName
    eps: Radius
    step_size: PositiveFloat
    steps: PositiveInt


@dataclass(frozen=True, kw_only=True)
class LossGradient(Strict):
    """The gradient of the loss with respect to each image, as an image (at-odds-2019, Figures 2 and 10).

    Clipped at `deviations` standard deviations of the image's own gradient, to either side; zero is grey.
    """

    kind: Literal["loss-gradient"]
    deviations: PositiveFloat = 3.0


@dataclass(frozen=True, kw_only=True)
class Errors(Strict):
    """The images that the source misclassifies, as they are, with the labels that it gives them.

    Wallace (2019), "Learning from Incorrectly Labeled Data", response 6 in "A Discussion of 'Adversarial Examples Are
    Not Bugs, They Are Features'" (distill.pub).
    """

    kind: Literal["errors"]


@dataclass(frozen=True, kw_only=True)
class Transferring(Strict):
    """Of derived images those that the source, another network, also takes for their label; or those it does not.

    two-pathways-2021, Section 3.
    """

    kind: Literal["transferring"]
    transfers: bool


Method = Annotated[
    Inversion | TargetedAttack | UntargetedAttack | LossGradient | Errors | Transferring, Discriminator("kind")
]


@dataclass(frozen=True, kw_only=True)
class Derived(Strict):
    """A data set made from the input `data` with the network `source`; only the named splits are derived."""

    method: Method
    seed: Seed
    precision: Precision = "float32"
    splits: Annotated[tuple[Split, ...], MinLen(1)]


@dataclass(frozen=True, kw_only=True)
class Evaluation(Strict):
    """The accuracy of the input `model` on one split of the input `data`, at every radius and every label shift.

    The attacks run in turn, each on what the ones before it left; an image stands only if it withstands all.
    """

    split: Split
    norm: NormName
    attacks: Attacks
    precision: Precision = "float32"
    eps: Annotated[tuple[Radius, ...], MinLen(1)]
    label_shifts: Annotated[tuple[Annotated[int, Ge(0)], ...], MinLen(1)] = (0,)


@dataclass(frozen=True, kw_only=True)
class Measurement(Strict):
    """The rows that the function `measure` of a module of this package gives for its inputs and these settings."""

    module: Annotated[str, StringConstraints(pattern=r"^(measurements|theory)\.[a-z][a-z0-9_]*$")]
    settings: Mapping[str, Any]


Parameters = Data | Model | Derived | Evaluation | Measurement
