"""Model names: bundled encoders, and repositories of the Hugging Face Hub.

names.py   `folder_of`: a path, a bundled encoder (`mini`, `mini-ko`) or a repository (`org/name@revision`)
hub.py     downloads through huggingface_hub
data.py    `hub:org/name#split`: labelled data of the Hub, through datasets
"""

from .names import BUNDLED as BUNDLED
from .names import bundled as bundled
from .names import folder_of as folder_of
from .names import name_of as name_of
