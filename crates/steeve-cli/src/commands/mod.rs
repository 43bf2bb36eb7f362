//! The subcommands, a file each: arguments in, output and exit status out.

pub(crate) mod plan_command;
pub(crate) mod check_command;
pub(crate) mod compare_command;
pub(crate) mod show_command;
pub(crate) mod diff_command;
pub(crate) mod view_command;
pub(crate) mod fit_command;
pub(crate) mod record_command;
pub(crate) mod estimate_command;
pub(crate) mod devices_command;
