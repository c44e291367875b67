//! One line at a time, on stderr or appended to a file, with no allocation, no lock and no descriptor kept open.
//!
//! Stderr belongs to the program. It may have been closed and its number given to a file or a connection since; so what
//! descriptor 2 was is remembered: nothing is written where it was closed when the program began, nor to a socket that was
//! not there at the first look-up of a hooked name. A reader that is gone or does not read costs the line and nothing else.

use core::ffi::CStr;
use core::fmt::{self, Write};
use core::sync::atomic::{AtomicPtr, AtomicU8, AtomicU64, Ordering};

pub use gpucap_core::config::Level;

/// Longest line, in bytes; what is over is cut.
const LINE: usize = 1024;
/// How long a line waits for room in a pipe.
const PATIENCE_MS: i32 = 100;

static LEVEL: AtomicU8 = AtomicU8::new(Level::Warn as u8);
static FILE: AtomicPtr<libc::c_char> = AtomicPtr::new(core::ptr::null_mut());
/// What stderr was: a socket's inode, [`CLOSED`], or 0 for anything else.
static STDERR: AtomicU64 = AtomicU64::new(0);
const CLOSED: u64 = u64::MAX;

/// Sets level and file once the configuration is known. The file is opened for each line and created if need be.
pub fn configure(level: Level, file: Option<&'static CStr>) {
    LEVEL.store(level as u8, Ordering::Relaxed);
    let path = file.map_or(core::ptr::null_mut(), |path| path.as_ptr().cast_mut());
    FILE.store(path, Ordering::Release);
}

/// At load: a program without a stderr will have something else by its number soon.
pub fn at_load() {
    if stderr_is().is_none() {
        STDERR.store(CLOSED, Ordering::Relaxed);
    }
}

/// Remembers what stderr is, at the first look-up of a hooked name.
pub fn remember_stderr() {
    if STDERR.load(Ordering::Relaxed) == CLOSED {
        return;
    }
    let was = match stderr_is() {
        None => CLOSED,
        Some((libc::S_IFSOCK, inode)) => inode,
        Some(_) => 0,
    };
    STDERR.store(was, Ordering::Relaxed);
}

/// Whether lines of this level are written.
#[inline]
pub fn enabled(level: Level) -> bool {
    level as u8 <= LEVEL.load(Ordering::Relaxed)
}

/// Writes a line that says that gpucap can't do its work.
pub fn error(args: fmt::Arguments<'_>) {
    line(Level::Error, args);
}

/// Writes a line that somebody should look at.
pub fn warn(args: fmt::Arguments<'_>) {
    line(Level::Warn, args);
}

/// Writes a line about what is in force.
pub fn info(args: fmt::Arguments<'_>) {
    line(Level::Info, args);
}

/// Writes a line for those who look for a fault.
pub fn debug(args: fmt::Arguments<'_>) {
    line(Level::Debug, args);
}

/// Writes one line of that level, if it is enabled. `errno` stays as it was.
pub fn line(level: Level, args: fmt::Arguments<'_>) {
    if !enabled(level) {
        return;
    }
    let mut text = Line { bytes: [0; LINE], len: 0 };
    // SAFETY: getpid(2) has no preconditions.
    let pid = unsafe { libc::getpid() };
    let _ = write!(text, "gpucap[{pid}]: {}: ", word(level));
    let _ = text.write_fmt(args);
    // Text from the program's environment must not forge a second line.
    for byte in &mut text.bytes[..text.len] {
        if byte.is_ascii_control() {
            *byte = b' ';
        }
    }
    text.len = text.len.min(LINE - 1);
    text.bytes[text.len] = b'\n';
    write_out(&text.bytes[..=text.len]);
}

fn word(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Info => "info",
        Level::Debug => "debug",
        _ => "warning",
    }
}

fn write_out(bytes: &[u8]) {
    // SAFETY: errno is this thread's own (errno(3)).
    let errno = unsafe { *libc::__errno_location() };
    let path = FILE.load(Ordering::Acquire);
    if !path.is_null() {
        // O_NONBLOCK: a named pipe that nobody reads is no reason to wait.
        let flags =
            libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_CLOEXEC | libc::O_NOCTTY | libc::O_NONBLOCK;
        // SAFETY: `path` is a C string that lives for ever (configure); open(2).
        let fd = unsafe { libc::open(path, flags, 0o644) };
        if fd >= 0 {
            write_fd(fd, bytes);
            // SAFETY: the descriptor was opened here.
            unsafe { libc::close(fd) };
        }
    } else if stderr_is_ours() {
        write_fd(2, bytes);
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// A whole line in one write, so that lines of several processes do not mix.
fn write_fd(fd: i32, bytes: &[u8]) {
    let mut ready = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
    // SAFETY: poll(2) over one valid pollfd. A pipe that is ready takes at least a page, so the write does not wait.
    let answers = unsafe { libc::poll(&raw mut ready, 1, PATIENCE_MS) };
    if answers == 1 && ready.revents == libc::POLLOUT {
        // SAFETY: the buffer is valid for its length (write(2)); a failure has nowhere to be reported.
        without_sigpipe(|| unsafe { libc::write(fd, bytes.as_ptr().cast(), bytes.len()) });
    }
}

/// Makes a write that must not end the program: a pipe without a reader raises SIGPIPE in the thread that writes, which
/// is held back here and taken away, unless one of the program's own was waiting already.
fn without_sigpipe(write: impl FnOnce() -> isize) {
    // SAFETY: sigset_t is a plain array that the calls below fill (sigsetops(3)); masks are the calling thread's
    // (pthread_sigmask(3)), and a SIGPIPE of its own write is pending for it alone (pipe(7), sigtimedwait(2)).
    unsafe {
        let (mut pipe, mut before, mut pending): (libc::sigset_t, libc::sigset_t, libc::sigset_t) = core::mem::zeroed();
        libc::sigemptyset(&raw mut pipe);
        libc::sigaddset(&raw mut pipe, libc::SIGPIPE);
        libc::sigpending(&raw mut pending);
        let theirs = libc::sigismember(&raw const pending, libc::SIGPIPE) == 1;
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const pipe, &raw mut before);
        let written = write();
        if written < 0 && *libc::__errno_location() == libc::EPIPE && !theirs {
            let at_once: libc::timespec = core::mem::zeroed();
            libc::sigtimedwait(&raw const pipe, core::ptr::null_mut(), &raw const at_once);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, core::ptr::null_mut());
    }
}

fn stderr_is_ours() -> bool {
    let was = STDERR.load(Ordering::Relaxed);
    match stderr_is() {
        // Whatever has the number now was opened by a program without a stderr, for something else.
        _ if was == CLOSED => false,
        Some((libc::S_IFSOCK, inode)) => inode == was,
        Some((kind, _)) => matches!(kind, libc::S_IFREG | libc::S_IFCHR | libc::S_IFIFO),
        None => false,
    }
}

/// File type and inode of descriptor 2; `None` where it is closed.
fn stderr_is() -> Option<(libc::mode_t, u64)> {
    // SAFETY: all-zero bytes are a valid `stat`, and fstat(2) only writes it.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: as above; fstat fails on a closed descriptor.
    (unsafe { libc::fstat(2, &raw mut stat) } == 0).then_some((stat.st_mode & libc::S_IFMT, stat.st_ino))
}

struct Line {
    bytes: [u8; LINE],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = LINE - 1 - self.len;
        let taken = text.len().min(room);
        self.bytes[self.len..self.len + taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.len += taken;
        Ok(())
    }
}
