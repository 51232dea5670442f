"""Model names: bundled encoders, and repositories of the Hugging Face Hub.

folder_of(name)   the folder of a path, a bundled encoder (`mini`, `mini-ko`) or a repository (`org/name@revision`)
"""

from .names import BUNDLED as BUNDLED
from .names import bundled as bundled
from .names import folder_of as folder_of
from .names import name_of as name_of
