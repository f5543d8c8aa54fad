"""What several panes share: tables, the page of a row, help, events."""
