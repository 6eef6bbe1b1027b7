"""The public names of all packages, and what they name."""

import vendi_guidance
from vendi_guidance import adapter, evaluation, features, scores

PACKAGES = (vendi_guidance, adapter, evaluation, features, scores)

PUBLIC = {name: getattr(package, name) for package in PACKAGES for name in package.__all__}
