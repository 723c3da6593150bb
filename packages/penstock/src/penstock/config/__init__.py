"""Pipeline files: read, checked, and turned into frozen models. Imports no Spark and nothing that a file names."""

from __future__ import annotations

from penstock.config.check import Loaded, load
from penstock.config.expand import BadReferenceError, expand, expand_settings
from penstock.config.model import (
    BatchConfig,
    ConnectorConfig,
    DeadLetterQueueConfig,
    File,
    LogConfig,
    PipelineConfig,
    ProcessorConfig,
    RetentionConfig,
)
from penstock.config.problem import ConfigErrors, Problem
from penstock.config.settings import Settings, parse_settings
from penstock.config.units import Duration, Size, parse_duration, parse_size

__all__ = [
    "BadReferenceError",
    "BatchConfig",
    "ConfigErrors",
    "ConnectorConfig",
    "DeadLetterQueueConfig",
    "Duration",
    "File",
    "Loaded",
    "LogConfig",
    "PipelineConfig",
    "Problem",
    "ProcessorConfig",
    "RetentionConfig",
    "Settings",
    "Size",
    "expand",
    "expand_settings",
    "load",
    "parse_duration",
    "parse_settings",
    "parse_size",
]
