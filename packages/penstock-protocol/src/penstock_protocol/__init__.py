"""The connector protocol: messages and a thin layer that hides gRPC. Depends on neither the SDK nor the engine."""

import os

__version__ = "0.1.0"

# Plugin programs are started by fork and exec. gRPC would look after the forked half, which lives for a moment only, and says on stderr
# where it can't. It reads this when it is imported, which is later.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
