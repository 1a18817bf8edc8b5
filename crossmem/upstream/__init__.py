"""An external checkout of the API repository in place of the embedded one; it is never written."""
