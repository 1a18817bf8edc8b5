from . import findings as findings
from . import hypotheses as hypotheses
from . import measures as measures
from . import pictures as pictures
from . import reading as reading
from .settings import ExperienceSettings as ExperienceSettings
from .settings import arm_of as arm_of
from .settings import run as run
