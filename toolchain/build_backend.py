"""scikit-build-core for pyproject.toml, with a readable error if it is missing, which
`pip install --no-build-isolation` does not install."""

try:
    from scikit_build_core.build import *  # noqa: F403
except ModuleNotFoundError as error:
    if error.name != "scikit_build_core":
        raise
    raise SystemExit(
        "swamp: --no-build-isolation needs scikit-build-core: "
        "pip install scikit-build-core") from None
