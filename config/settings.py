"""The settings: environment over one YAML file over the shipped defaults, checked whole before anything starts."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, SecretStr, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from weighbridge.config.collector_section import CollectorSettings
from weighbridge.config.commercial_section import MAIN, CommercialSettings, Endpoint
from weighbridge.config.envsource import CONFIG_VARIABLE, EnvTree, reachable, read_env, variable
from weighbridge.config.legal import AnyPath, is_loopback
from weighbridge.config.log_section import LogSettings
from weighbridge.config.masking_section import MaskingSettings
from weighbridge.config.problems import ConfigProblems, Problem, dotted, explain, wrong
from weighbridge.config.redis_section import RedisSettings
from weighbridge.config.roads import MODEL_NAMES
from weighbridge.config.sections import (
    AdminKey,
    ApiKey,
    AuthSettings,
    LedgerSettings,
    PolicySettings,
    PoolSettings,
    PriceSettings,
    ServerSettings,
)
from weighbridge.config.shape import Step, field_at, leaves
from weighbridge.config.shipped import shipped, shipped_file
from weighbridge.config.tier_section import TierSettings, without_absent
from weighbridge.config.trace_section import TraceSettings
from weighbridge.config.yamlsource import YamlFile, read_yaml

__all__ = [
    "MAIN",
    "AdminKey",
    "ApiKey",
    "AuthSettings",
    "CollectorSettings",
    "CommercialSettings",
    "Endpoint",
    "LedgerSettings",
    "LogSettings",
    "MaskingSettings",
    "PolicySettings",
    "PoolSettings",
    "PriceSettings",
    "RedisSettings",
    "ServerSettings",
    "Settings",
    "TierName",
    "TierSettings",
    "TraceSettings",
    "effective",
    "load_settings",
    "with_place",
]

TierName = Literal["local-8b", "local-70b"]
_HIDDEN = "***"
_COMPLAINT = re.compile(r"([\w.-]+): (.+)")
_layers: ContextVar[tuple[dict[str, Any], ...]] = ContextVar("settings_layers", default=())


class _Layer(PydanticBaseSettingsSource):
    """One layer of settings, already read."""

    def __init__(self, settings_cls: type[BaseSettings], tree: dict[str, Any]) -> None:
        super().__init__(settings_cls)
        self._tree = tree

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        return self._tree.get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        return dict(self._tree)


class Settings(BaseSettings):
    """Everything a gateway is told. Built by `load_settings`; `Settings()` alone is the shipped defaults."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    server: ServerSettings = Field(default_factory=ServerSettings)
    auth: AuthSettings = Field(default_factory=AuthSettings)
    tiers: Annotated[dict[TierName, TierSettings], BeforeValidator(without_absent)] = shipped(
        "tiers", "The local tiers.", validate_default=True
    )
    pool: PoolSettings = Field(default_factory=PoolSettings)
    commercial: CommercialSettings = Field(default_factory=CommercialSettings)
    redis: RedisSettings = Field(default_factory=RedisSettings)
    policies: PolicySettings = Field(default_factory=PolicySettings)
    masking: MaskingSettings = Field(default_factory=MaskingSettings)
    log: LogSettings = Field(default_factory=LogSettings)
    traces: TraceSettings = Field(default_factory=TraceSettings)
    collector: CollectorSettings = Field(default_factory=CollectorSettings)
    prices: PriceSettings = Field(default_factory=PriceSettings)
    ledger: LedgerSettings = Field(default_factory=LedgerSettings)
    state_dir: AnyPath = Field(
        default_factory=lambda: default_state_dir(os.environ),
        description="Folder of `ledger.sqlite3` (usage records), `state.sqlite3` (keys, admin changes, audit log) and, "
        "unless the settings hold one, `masking.secret`; made when missing. One gateway a folder.",
        json_schema_extra={"default": "$XDG_STATE_HOME/weighbridge, else ~/.local/state/weighbridge"},
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        # The layers are read by load_settings, which knows the file, line or variable of every value.
        return (init_settings, *(_Layer(settings_cls, tree) for tree in _layers.get()))

    @model_validator(mode="after")
    def _safe(self) -> Settings:
        if not self.tiers:
            raise wrong("tiers", "at least one local tier is needed")
        self._check_adapters()
        if not self.auth.keys and not self.auth.admin_keys and not is_loopback(self.server.host):
            raise wrong(
                "server.host",
                f"{self.server.host} can be reached from other machines, but auth.keys holds no API key: add one, or "
                "an admin key to make some with (auth.admin_keys), or listen on 127.0.0.1",
            )
        if self.pool.progress_timeout_s <= self.server.slow_reader_timeout_s:
            # A caller who does not read holds its tokens up, which must not look like an engine that makes none.
            raise wrong(
                "pool.progress_timeout_s",
                f"must be above server.slow_reader_timeout_s ({self.server.slow_reader_timeout_s:g})",
            )
        return self

    @property
    def adapters(self) -> tuple[str, ...]:
        """The names of all tiers' LoRA adapters."""
        return tuple(name for tier in self.tiers.values() for name in tier.lora_adapters)

    def _check_adapters(self) -> None:
        taken: dict[str, str] = dict.fromkeys(MODEL_NAMES, "is a road's name already")
        for tier, held in self.tiers.items():
            for name in held.lora_adapters:
                if name in taken:
                    raise wrong(("tiers", tier, "lora_adapters", name), taken[name])
                taken[name] = f"is an adapter of {tier} already"


def default_state_dir(env: Mapping[str, str]) -> Path:
    """The XDG state folder (a relative XDG_STATE_HOME is ignored, as its specification asks)."""
    home = env.get("XDG_STATE_HOME", "")
    base = Path(home) if Path(home).is_absolute() else Path(env.get("HOME") or "~") / ".local/state"
    return base / "weighbridge"


@dataclass(frozen=True, slots=True)
class _Source:
    """A layer and how its places are called in a message."""

    tree: Mapping[str, Any]
    problem: Callable[[Sequence[Step], str], Problem]


def load_settings(
    path: Path | None = None,
    env: Mapping[str, str] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Settings:
    """Read and check the settings.

    Args:
        path: the YAML file; None takes `WEIGHBRIDGE_CONFIG`, and without that there is no file.
        env: the environment; None is this process's own.
        overrides: nested values that go over everything, such as command line options.

    Raises:
        ConfigProblems: a ConfigError with every problem found, one line each.
    """
    env = os.environ if env is None else env
    file = _settings_file(path, env)
    variables = read_env(Settings, env)
    command = dict(overrides or {})
    problems = [*variables.problems, *_secrets_in(file)]
    trees = _as_layers(file, variables, env)
    token = _layers.set(trees)
    try:
        settings = Settings(**command)
    except ValidationError as exc:
        given = _given(command, variables, file)
        # The shipped defaults are right by themselves, so what stands over them is to blame wherever there is any.
        problems += [
            _located(given, at, why) or shipped_file().problem(at, why)
            for at, why in explain(Settings, exc.errors())
        ]
    finally:
        _layers.reset(token)
    if problems:
        raise ConfigProblems(sorted(set(problems), key=lambda p: (p.file, p.line or 0, p.field, p.message)))
    return settings


def with_place(
    complaint: str,
    path: Path | None,
    env: Mapping[str, str] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> str:
    """`field: message` about settings that were loaded, with the place the field got its value from in front; see
    `place`."""
    problem = place(complaint, path, env, overrides)
    return str(problem) if problem.file else complaint


def place(
    complaint: str,
    path: Path | None,
    env: Mapping[str, str] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Problem:
    """`field: message` about settings that were loaded, as a problem at the place the field got its value from.

    That is a line of the file, a variable or the command line. There is no place (an empty file, no field, the whole
    complaint as the message) when it begins with no field of the settings or when only the shipped defaults give the
    field.

    Args:
        path, env, overrides: what `load_settings` got.
    """
    nowhere = Problem("", None, "", complaint)
    env = os.environ if env is None else env
    found = _COMPLAINT.fullmatch(complaint)
    at = () if found is None else tuple(found[1].split("."))
    if found is None or field_at(Settings, at) is None:
        return nowhere
    try:
        file = _settings_file(path, env)
    except ConfigProblems:
        return nowhere  # gone since it was loaded
    given = _given(dict(overrides or {}), read_env(Settings, env), file)
    return _located(given, at, found[2]) or nowhere


def _settings_file(path: Path | None, env: Mapping[str, str]) -> YamlFile:
    if path is None and env.get(CONFIG_VARIABLE):
        path = Path(env[CONFIG_VARIABLE])
    return YamlFile("settings", {}, {(): (1, 1)}) if path is None else read_yaml(path)


def _given(command: Mapping[str, Any], variables: EnvTree, file: YamlFile) -> list[_Source]:
    """The layers over the shipped defaults, the uppermost first."""
    return [
        _Source(command, lambda at, why: Problem("command line", None, dotted(at), why)),
        _Source(variables.tree, variables.problem),
        _Source(file.data, file.problem),
    ]


def _as_layers(file: YamlFile, variables: EnvTree, env: Mapping[str, str]) -> tuple[dict[str, Any], ...]:
    # A section whose lines are all commented out is null in YAML; it says nothing.
    written = {key: value for key, value in file.data.items() if value is not None}
    shipped_tree = {**shipped_file().data, "state_dir": str(default_state_dir(env))}
    return (variables.tree, written, shipped_tree)


def _secrets_in(file: YamlFile) -> list[Problem]:
    problems = []
    for leaf in leaves(Settings):
        if leaf.slot.type is not SecretStr:
            continue
        for path in _written(file.data, leaf.path):
            named = [variable(own) for own in reachable(Settings, leaf.path)]
            own = variable(path) if variable(path) in named else named[0]
            message = f"a secret must not stand in this file: use {own} or {dotted(path)}_file"
            problems.append(file.problem(path, message))
    return problems


def _written(tree: Any, path: tuple[str, ...], at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The places in a file that a leaf's path stands for and that hold something."""
    if not path:
        if tree is not None:
            yield at
    elif isinstance(tree, dict):
        for step in tree if path[0] == "*" else path[:1]:
            yield from _written(tree.get(step), path[1:], (*at, step))


def _located(sources: Sequence[_Source], at: tuple[Step, ...], message: str) -> Problem | None:
    """The problem, put where the value came from: the uppermost layer that holds it or, failing that, its parent."""
    for length in range(len(at), 0, -1):
        for source in sources:
            if _holds(source.tree, at[:length]):
                return source.problem(at, message)
    return None


def _holds(tree: Any, path: Sequence[Step]) -> bool:
    for step in path:
        try:
            tree = tree[step]
        except (KeyError, IndexError, TypeError):
            return False
    return True


def effective(settings: Settings) -> dict[str, Any]:
    """The settings in force as plain data for printing, with secrets and key hashes hidden."""
    shown: dict[str, Any] = _shown(settings)
    return shown


def _shown(value: Any) -> Any:
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        return {
            name: _HIDDEN if _is_hidden(fields[name]) else _shown(getattr(value, name)) for name in fields
        }
    if isinstance(value, Mapping):
        return {str(key): _shown(held) for key, held in value.items()}
    if isinstance(value, list | tuple):
        return [_shown(held) for held in value]
    if isinstance(value, SecretStr):
        return _HIDDEN
    return str(value) if isinstance(value, Path) else value


def _is_hidden(field: FieldInfo) -> bool:
    return isinstance(field.json_schema_extra, dict) and bool(field.json_schema_extra.get("hidden"))
