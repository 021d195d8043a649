//! Stops a real process at a chosen step, for crash tests (docs/migration.md, "Test builds").

use std::io;

use super::replace::Step;

/// The hook of ordinary runs. In builds with debug assertions the environment variable
/// `DATASETRT_TEST_STEP` can make the n-th step of the process (counted from 1) its last:
/// `kill:<n>` ends the process by SIGKILL before that step, `fail:<n>:<errno>` fails it.
///
/// # Errors
/// The one that was asked for.
#[doc(hidden)]
pub fn test_step(_step: Step) -> io::Result<()> {
    #[cfg(debug_assertions)]
    {
        use std::sync::atomic::{AtomicU64, Ordering};

        static TAKEN: AtomicU64 = AtomicU64::new(0);
        let number = TAKEN.fetch_add(1, Ordering::Relaxed) + 1;
        let script = std::env::var("DATASETRT_TEST_STEP").unwrap_or_default();
        let mut words = script.split(':');
        let action = words.next();
        if words.next().and_then(|word| word.parse().ok()) == Some(number) {
            match action {
                Some("kill") => {
                    let this = rustix::process::getpid();
                    rustix::process::kill_process(this, rustix::process::Signal::KILL)?;
                }
                Some("fail") => {
                    let errno = words.next().and_then(|word| word.parse().ok());
                    return Err(errno.map_or_else(
                        || io::Error::from(io::ErrorKind::Other),
                        io::Error::from_raw_os_error,
                    ));
                }
                _ => {}
            }
        }
    }
    Ok(())
}
