"""What people see of a run: tables, figures, pages."""
