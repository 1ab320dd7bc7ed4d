//! `GET /v1/status?wait=up`: answers when its condition holds, or after the time limit.

use std::time::Duration;

use tokio::time::timeout;

use super::shared::Shared;
use crate::events::{Problem, Reply, Request};

const TIMEOUT_MAX_S: f64 = 3600.0;

/// All switches in sync, and this many controllers connected.
#[derive(Debug, PartialEq)]
pub struct Wait {
    controllers: usize,
    timeout: Duration,
}

impl Wait {
    /// Parses the query of a request for the status.
    ///
    /// # Errors
    /// `malformed`: names the parameter and the expected form.
    pub fn of(query: Option<&str>) -> Result<Option<Self>, Problem> {
        let mut wait = Self {
            controllers: 0,
            timeout: Duration::from_secs(30),
        };
        let mut asked = false;
        let parameters = query.unwrap_or_default().split('&');
        for parameter in parameters.filter(|parameter| !parameter.is_empty()) {
            let wrong = |expected: &str| {
                Problem::malformed(format!("\"{parameter}\"; expected {expected}"))
            };
            match parameter.split_once('=') {
                Some(("wait", "up")) => asked = true,
                Some(("controllers", number)) => {
                    let number = number.parse();
                    wait.controllers =
                        number.map_err(|_| wrong("controllers=N, a number of controllers"))?;
                }
                Some(("timeout_s", seconds)) => {
                    let seconds = seconds.parse().ok();
                    let seconds = seconds.filter(|seconds| (0.0..=TIMEOUT_MAX_S).contains(seconds));
                    wait.timeout = seconds
                        .map(Duration::from_secs_f64)
                        .ok_or_else(|| wrong("timeout_s=S, seconds from 0 to 3600"))?;
                }
                _ => return Err(wrong("wait=up, controllers=N or timeout_s=S")),
            }
        }
        Ok(asked.then_some(wait))
    }

    /// Waits, and returns the status at the end.
    pub async fn ask(self, shared: &Shared) -> Reply {
        let controllers = self.controllers;
        let up = shared.ask(Request::AwaitUp { controllers });
        match timeout(self.timeout, up).await {
            Ok(reply) => reply,
            Err(_) => shared.ask(Request::Status).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_read_or_refused() {
        let wait = |controllers, seconds| {
            Some(Wait {
                controllers,
                timeout: Duration::from_secs_f64(seconds),
            })
        };
        for (query, expected) in [
            (None, None),
            (Some(""), None),
            (Some("timeout_s=5"), None),
            (Some("wait=up"), wait(0, 30.0)),
            (Some("controllers=2&wait=up&timeout_s=0.5"), wait(2, 0.5)),
        ] {
            assert_eq!(Wait::of(query).unwrap(), expected);
        }
        for query in [
            "wait",
            "wait=down",
            "wait=up&controllers=-1",
            "timeout_s=NaN",
            "timeout_s=-1",
            "timeout_s=1e9",
        ] {
            let problem = Wait::of(Some(query)).unwrap_err();
            assert_eq!(problem.code, "malformed");
            assert!(
                problem.detail.contains(query.rsplit('&').next().unwrap()),
                "{}",
                problem.detail
            );
        }
    }
}
