"""Where rows come from: named sets, folders, tables, archives."""
