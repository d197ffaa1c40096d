//! `make demo-cluster`: the cluster half of hostler without a Kubernetes. The API server and the scheduler are those of the
//! tests, three daemons run on captured machines, and the controller is the real program with its page.
//!
//! All files are in temporary folders. With `--once` it ends by itself; it fails where a promise of the controller is not kept.

#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a demonstration runs programs, talks, and fails by panicking"
)]

mod nodes;
#[path = "../say.rs"]
mod say;
mod scene;
mod story;

use std::{env, process::ExitCode};

use scene::DemoCluster;

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let once = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => false,
        ["--once"] => true,
        _ => {
            eprintln!("usage: demo-cluster [--once]   (with --once it ends by itself, else on Ctrl-C)");
            return ExitCode::from(2);
        }
    };
    let cluster = DemoCluster::start().await;
    story::tell(&cluster).await;
    cluster.show_page();
    if !once {
        println!("Ctrl-C ends it, and all of it goes.");
        tokio::signal::ctrl_c().await.expect("a signal can be waited for");
    }
    cluster.stop().await;
    println!("demo-cluster: all steps passed; two cards were kept for their job");
    ExitCode::SUCCESS
}
