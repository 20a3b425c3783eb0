"""The types of our provider that runs as processes declare. They load the SDK, which who only looks doesn't need."""

from locallb.runtimes.process.envoy_process import EnvoyProcess

RESOURCE_TYPES = (EnvoyProcess,)
