//! Asks an `ovs-vswitchd` over its control socket, as ovs-appctl does (JSON-RPC 1.0).

use std::io;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

/// Limit of a question. A revalidator's round takes half a second if nothing hurries it.
const PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of an answer.
const LONGEST: usize = 64 * 1024;

/// Returns when the cached flows that the data path has now have been compared with the rules: those that no rule leads to any more have
/// ended. A round of the revalidators may have begun before the question, so the second one counts.
///
/// # Errors
/// The reason why that is unknown.
pub async fn await_revalidators(socket: &Path) -> io::Result<()> {
    let asked = async {
        for _ in 0..2 {
            ask(socket, "revalidator/wait").await?;
        }
        Ok(())
    };
    match timeout(PATIENCE, asked).await {
        Ok(answered) => answered,
        Err(_) => Err(io::Error::other(format!(
            "no answer within {} seconds",
            PATIENCE.as_secs()
        ))),
    }
}

async fn ask(socket: &Path, method: &str) -> io::Result<()> {
    let mut stream = UnixStream::connect(socket).await?;
    let request = serde_json::json!({"id": 0, "method": method, "params": []});
    stream.write_all(request.to_string().as_bytes()).await?;
    let mut answer = Vec::new();
    loop {
        if stream.read_buf(&mut answer).await? == 0 || answer.len() > LONGEST {
            return Err(io::Error::other("no whole answer"));
        }
        // An error is most likely an incomplete answer.
        if let Ok(answer) = serde_json::from_slice::<Value>(&answer) {
            return match answer.get("error") {
                None | Some(Value::Null) => Ok(()),
                Some(error) => Err(io::Error::other(format!("{method}: {error}"))),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::UnixListener;

    /// Answers connections with these texts, in turn, and returns the requests.
    async fn answered(answers: &[&str]) -> (io::Result<()>, Vec<String>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.ctl");
        let listener = UnixListener::bind(&path).unwrap();
        let serving = async {
            let mut requests = Vec::new();
            for answer in answers {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = vec![0; 1024];
                let length = stream.read(&mut request).await.unwrap();
                requests.push(String::from_utf8_lossy(&request[..length]).into_owned());
                let (first, second) = answer.split_at(answer.len() / 2);
                stream.write_all(first.as_bytes()).await.unwrap();
                tokio::task::yield_now().await;
                stream.write_all(second.as_bytes()).await.unwrap();
            }
            drop(listener);
            requests
        };
        tokio::join!(await_revalidators(&path), serving)
    }

    #[tokio::test]
    async fn the_second_round_counts() {
        let done = r#"{"id":0,"result":"","error":null}"#;
        let (result, requests) = answered(&[done, done]).await;
        result.unwrap();
        assert_eq!(requests.len(), 2);
        assert!(requests[0].contains(r#""method":"revalidator/wait""#));
    }

    #[tokio::test]
    async fn errors_are_told() {
        let refused =
            r#"{"id":0,"result":null,"error":"\"revalidator/wait\" is not a valid command"}"#;
        let (result, _) = answered(&[refused]).await;
        assert!(result
            .unwrap_err()
            .to_string()
            .contains("not a valid command"));
        let nowhere = Path::new("/nonexistent/a.ctl");
        assert!(await_revalidators(nowhere).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_hung_switch_is_not_awaited_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.ctl");
        let _listener = UnixListener::bind(&path).unwrap();
        let error = await_revalidators(&path).await.unwrap_err();
        assert!(error.to_string().contains("no answer"), "{error}");
    }
}
