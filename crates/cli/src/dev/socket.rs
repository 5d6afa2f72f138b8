//! Orders over the socket in the data directory: one line in, one line of JSON out, for each connection.

use std::io::{BufRead, BufReader, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use super::args::DevCommand;
use super::control::{DevControl, refusal};
use super::home::connect;
use crate::outcome::ExitOutcome;
use crate::output::show;
use crate::printable::printable_lines;

/// Connections that are served at a time; others wait.
const CONNECTIONS_MAX: usize = 8;
const LINE_BYTES_MAX: u64 = 256;
const ANSWER_BYTES_MAX: u64 = 64 * 1024;
/// For a connection, from its first byte to its last.
const PATIENCE: Duration = Duration::from_secs(20);

/// Serves connections without end.
pub(crate) async fn serve(listener: UnixListener, control: DevControl) {
    let seats = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let seat = seats.clone().acquire_owned().await.expect("it is never closed");
        match listener.accept().await {
            Ok((stream, _)) => {
                let control = control.clone();
                tokio::spawn(async move {
                    // Whoever has gone needs no answer.
                    let _ = timeout(PATIENCE, answer(stream, &control)).await;
                    drop(seat);
                });
            }
            // Out of descriptors, most likely.
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn answer(mut stream: UnixStream, control: &DevControl) -> std::io::Result<()> {
    let (reader, mut writer) = stream.split();
    let mut line = Vec::new();
    tokio::io::BufReader::new(reader.take(LINE_BYTES_MAX)).read_until(b'\n', &mut line).await?;
    let answer = match std::str::from_utf8(&line) {
        Ok(order) if order.ends_with('\n') => control.order(order).await,
        _ => refusal("an order is one line of at most 256 bytes"),
    };
    writer.write_all(format!("{answer}\n").as_bytes()).await
}

/// `kvorum dev ORDER`: has the running `dev` carry it out, and prints the nodes.
pub(crate) fn order(command: &DevCommand) -> Result<ExitOutcome> {
    let (line, target) = command.line();
    let dir = target.data_dir.display();
    let Ok(stream) = connect(&target.data_dir) else {
        let hint = "start it there first, or name its directory with --data-dir";
        return say(&format!("no `kvorum dev` takes orders in {dir}: {hint}"), ExitOutcome::Refused);
    };
    let Ok(answer) = ask(stream, &line) else {
        return say(
            &format!("the `kvorum dev` in {dir} has not answered: it is stopping, or hangs"),
            ExitOutcome::Refused,
        );
    };
    let Some(nodes) = answer.get("nodes").and_then(Value::as_array) else {
        return say(answer.get("error").and_then(Value::as_str).unwrap_or("refused"), ExitOutcome::Usage);
    };
    let rows: Vec<String> = nodes.iter().map(row).collect();
    show(target.form.output, &answer, &rows.join("\n"))
}

fn say(error: &str, outcome: ExitOutcome) -> Result<ExitOutcome> {
    writeln!(std::io::stderr(), "kvorum: {}", printable_lines(error))?;
    Ok(outcome)
}

fn ask(mut stream: std::os::unix::net::UnixStream, line: &str) -> Result<Value> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(format!("{line}\n").as_bytes())?;
    let mut answer = Vec::new();
    BufReader::new(stream.take(ANSWER_BYTES_MAX)).read_until(b'\n', &mut answer)?;
    serde_json::from_slice(&answer).context("its answer is no JSON")
}

/// A node as text: number, URL, state, and what is wrong with it.
fn row(node: &Value) -> String {
    let text = |name: &str| node.get(name).and_then(Value::as_str).unwrap_or("?");
    let number = |name: &str| node.get(name).and_then(Value::as_i64).unwrap_or(0);
    let faults = [("slow_ms", "slow by", "ms"), ("skew_s", "clock off by", "s")];
    let faults = faults.into_iter().filter_map(|(name, what, unit)| {
        let amount = number(name);
        (amount != 0).then(|| format!("  {what} {amount} {unit}"))
    });
    let row = format!("{:>2}  {}  {:<7}{}", number("number"), text("url"), text("state"), faults.collect::<String>());
    printable_lines(row.trim_end())
}
