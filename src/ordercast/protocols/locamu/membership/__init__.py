"""LoCaMu with groups that change and leaves that come and go."""
