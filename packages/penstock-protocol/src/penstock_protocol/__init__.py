"""The connector protocol: messages and a thin layer that hides gRPC. Depends on neither the SDK nor the engine."""

__version__ = "0.1.0"
