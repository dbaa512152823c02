"""What callers send and get, as OpenAPI has it."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Text = Annotated[str, Field(max_length=1000)]
OwnShare = Annotated[float, Field(ge=0, le=1)] | Literal["auto"]


class Question(BaseModel):
    """Inputs of one client."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"client": "Oslo", "inputs": [[5.1, 3.5, 1.4]]},
                {"client": "Oslo", "inputs": [{"age": 61, "pulse": 80}]},
                {"inputs": ["iVBORw0KGgo…"], "own_share": 0.5},
            ]
        },
    )
    client: Text | None = Field(None, description="whose models answer; may be left out if one")
    version: Text | None = Field(
        None, description="of the models that must answer; where others answer now, status 409"
    )
    inputs: list[Any] = Field(
        description="rows (lists, or objects by column), nested lists of pixels, pictures as base64"
    )
    own_share: OwnShare = Field("auto", description="of inputs like the client's own")
    explain: bool = Field(False, description="whether to tell both models' views")


class Explanation(BaseModel):
    """What stands behind an answer."""

    local: dict[str, float]
    global_: dict[str, float] = Field(alias="global")
    prior: dict[str, float] | None
    own_chance: float | None
    score: float
    limits: dict[str, float | None]


class Told(BaseModel):
    """An answer, or why there is none."""

    id: int | None = Field(description="of the decision, where decisions are kept")
    label: str | None = Field(description="null: nobody answers")
    guess: str = Field(description="what would have been answered")
    confidence: float
    source: str = Field(description="local, global, personal or nobody")
    outcome: str
    reason: str
    probabilities: dict[str, float]
    uncertainty: dict[str, float]
    measured_on: dict[str, str] = Field(description="whose each uncertainty is")
    classes: list[str] | None = Field(description="those in question, where sets are made")
    own_share: float | None
    explanation: Explanation | None = None


class Answers(BaseModel):
    """Answers in the order of the inputs, all by one version of the client's models."""

    client: str
    version: str = Field(description="of the client's models: a digest of their files")
    remarks: list[str] = Field(description="of cells that were not read as they may be meant")
    answers: list[Told]


class Problem(BaseModel):
    """What is wrong, in a sentence."""

    error: str


class Column(BaseModel):
    """A column of a table."""

    name: str
    kind: str = Field(description="number, boolean, date or category")
    values: list[str] = Field(description="of a category, those that are known by name")


class Client(BaseModel):
    """A client that is answered for."""

    name: str
    version: str = Field(description="of the client's models: a digest of their files")
    dataset: str
    algorithm: str
    classes: list[str]
    features: list[str]
    columns: list[Column] | None = Field(
        description="where they are not all numbers: values may be texts, or null where missing"
    )
    shape: list[int]
    rule: str | None
    promise: str
    can_roll_back: bool
    before: str | None = Field(description="the version that a rollback goes back to")


class Info(BaseModel):
    """What the service is."""

    version: str = Field(description="of fedpn")
    clients: int
    models: dict[str, str] = Field(description="the version of each client's models")
    keeps_decisions: bool
    keeps_inputs: bool
    problem: str
    limits: dict[str, float]


class Decided(BaseModel):
    """A decision that was kept."""

    id: int
    time: float
    client: str
    version: str | None = Field(description="of the models that answered; null: of an older fedpn")
    outcome: str
    source: str
    label: str | None
    guess: str
    confidence: float
    epistemic: float
    aleatoric: float
    total: float
    own_share: float | None
    reason: str
    truth: str | None
    reviewed: float | None


class Review(BaseModel):
    """A person's label."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"label": "7"}]})
    label: Text
    instead: Text | None = Field(None, description="the label of a person that it corrects")


class Expected(BaseModel):
    """A share beside what was to be expected."""

    share: float = Field(description="of the last inputs")
    expected: float = Field(description="of the calibration rows")
    limit: float = Field(description="the greatest share that these allow for")
    rows: int = Field(description="inputs that were held against it, since these models came")


class Point(BaseModel):
    """A point of the chart."""

    time: float
    strangers: float
    abstentions: float
    foreign: float
    own_share: float | None


class Drift(BaseModel):
    """Whether inputs are as calibration led one to expect."""

    version: str = Field(description="of the client's models: a digest of their files")
    rows: int
    fewest: int = Field(description="rows below which the shares tell nothing")
    strangers: Expected
    abstentions: Expected
    foreign: Expected
    own_share: float | None
    alerts: list[str]
    chart: list[Point]


class Sample(BaseModel):
    """An input to try."""

    kind: str
    picture: str | None = Field(description="as base64")
    row: list[bool | float | str | None] | None
    columns: list[str] | None = Field(description="of the row, where they have names")


class Card(BaseModel):
    """The model card of a client, as Markdown."""

    version: str = Field(description="of the client's models: a digest of their files")
    text: str


class Done(BaseModel):
    """That something was done."""

    done: bool


class RolledBack(Done):
    """That other models answer."""

    version: str = Field(description="of the client's models: a digest of their files")
