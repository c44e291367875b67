//! A program that a test talks with line by line, for tests of several processes.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{self, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::run::{Output, Run, kill_group, wait};

/// A running program; dropping it ends it and everything it started.
pub struct Child {
    process: process::Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    heard: String,
    stderr: Option<JoinHandle<String>>,
    timeout: Duration,
    description: String,
}

impl Child {
    pub(crate) fn start(mut run: Run) -> Child {
        run.finish();
        run.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = run.command.spawn().unwrap_or_else(|error| panic!("{:?}: {error}", run.command));
        let (send, lines) = channel();
        if let Some(stdout) = process.stdout.take() {
            thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    if send.send(line).is_err() {
                        break;
                    }
                }
            });
        }
        let pipe = process.stderr.take();
        let stderr = thread::spawn(move || {
            let mut bytes = Vec::new();
            if let Some(mut pipe) = pipe {
                let _ = pipe.read_to_end(&mut bytes);
            }
            String::from_utf8_lossy(&bytes).into_owned()
        });
        let description = format!("{:?}", run.command);
        let stdin = process.stdin.take();
        Child { process, stdin, lines, heard: String::new(), stderr: Some(stderr), timeout: run.timeout, description }
    }

    /// Its pid, by which the truth knows it.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Writes a line to it.
    pub fn say(&mut self, line: &str) {
        if let Some(stdin) = &mut self.stdin {
            let _ = writeln!(stdin, "{line}").and_then(|()| stdin.flush()); // hear() tells that it has ended
        }
    }

    /// Its next line.
    ///
    /// # Panics
    /// If it ends, or says nothing before the timeout.
    #[track_caller]
    pub fn hear(&mut self) -> String {
        match self.lines.recv_timeout(self.timeout) {
            Ok(line) => {
                self.heard.push_str(&line);
                self.heard.push('\n');
                line
            }
            Err(error) => {
                kill_group(&mut self.process);
                let stderr = self.stderr.take().and_then(|all| all.join().ok()).unwrap_or_default();
                panic!("{}: {error}\n--- stdout\n{}\n--- stderr\n{stderr}", self.description, self.heard)
            }
        }
    }

    /// Writes a line and returns the answer to it.
    #[track_caller]
    pub fn ask(&mut self, line: &str) -> String {
        self.say(line);
        self.hear()
    }

    /// Kills it with SIGKILL, alone, and waits until it is gone.
    pub fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Closes its stdin and waits for its end.
    ///
    /// # Panics
    /// If it outlives the timeout.
    pub fn wait(mut self) -> Output {
        self.stdin = None;
        let status = wait(&mut self.process, self.timeout);
        if status.is_none() {
            kill_group(&mut self.process);
        }
        while let Ok(line) = self.lines.recv() {
            self.heard.push_str(&line);
            self.heard.push('\n');
        }
        let stderr = self.stderr.take().and_then(|all| all.join().ok()).unwrap_or_default();
        let (stdout, description) = (std::mem::take(&mut self.heard), std::mem::take(&mut self.description));
        let Some(status) = status else {
            panic!("{description}\nnot ended after {:?}\n--- stdout\n{stdout}\n--- stderr\n{stderr}", self.timeout);
        };
        Output { code: status.code(), signal: status.signal(), stdout, stderr, pid: self.process.id(), description }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if let Ok(None) = self.process.try_wait() {
            kill_group(&mut self.process);
        }
    }
}
