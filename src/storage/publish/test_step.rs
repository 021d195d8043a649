//! Stops a real process at a chosen step, for crash tests (docs/migration.md, "Test builds").

use std::io;

use super::replace::Step;

/// The hook of ordinary runs. In builds with debug assertions the environment variable
/// `DATASETRT_TEST_STEP` can disturb the n-th step of the process (counted from 1):
/// `kill:<n>:<signal>` sends the process that signal before the step, `fail:<n>:<errno>` fails it.
///
/// # Errors
/// The one that was asked for.
#[doc(hidden)]
pub fn test_step(_step: Step) -> io::Result<()> {
    #[cfg(debug_assertions)]
    {
        use std::sync::atomic::{AtomicU64, Ordering};

        use rustix::process::{Signal, getpid, kill_process};

        static TAKEN: AtomicU64 = AtomicU64::new(0);
        let number = TAKEN.fetch_add(1, Ordering::Relaxed) + 1;
        let script = std::env::var("DATASETRT_TEST_STEP").unwrap_or_default();
        let words: Vec<_> = script.split(':').collect();
        if let [action, at, what] = words.as_slice()
            && at.parse() == Ok(number)
            && let Ok(what) = what.parse()
        {
            match (*action, Signal::from_named_raw(what)) {
                ("kill", Some(signal)) => kill_process(getpid(), signal)?,
                ("fail", _) => return Err(io::Error::from_raw_os_error(what)),
                _ => {}
            }
        }
    }
    Ok(())
}
