"""The layers of detection. Each module builds one; `registry` names them."""
