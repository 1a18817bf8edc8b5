from . import analysis as analysis
from .analysis import figures as figures
from .analysis import findings as findings
from .analysis import metrics as metrics
from .analysis import slots as slots
from .analysis import stats as stats
from .analysis.compare import compare as compare
from .analysis.display import by_epoch as by_epoch
from .analysis.display import show as show
from .analysis.display import stable_policies as stable_policies
from .analysis.explorer import Explorer as Explorer
from .analysis.notices import notice as notice
from .harness.history import memory_at as memory_at
from .harness.results import load as load
from .settings import AcmeSettings as AcmeSettings
from .settings import CompareSettings as CompareSettings
from .settings import Phase1Settings as Phase1Settings
from .settings import Phase2Settings as Phase2Settings
from .settings import Phase3Settings as Phase3Settings
from .settings import StaleAttemptsSettings as StaleAttemptsSettings
from .settings import guard as guard
from .study import acme as acme
from .study import phase1 as phase1
from .study import phase2 as phase2
from .study import phase3 as phase3
from .study import run as run

__version__: str
