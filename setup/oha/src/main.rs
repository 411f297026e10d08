//! oha's own `main`, copied because oha's package exports only its library. All other code is in
//! that library.

use clap::Parser;
use oha::{Opts, run};

fn main() {
    let options = Opts::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(options.worker_threads.get())
        .enable_all()
        .build()
        .expect("threads for the load");
    if let Err(error) = runtime.block_on(run(options)) {
        eprintln!("Error: {error}");
        std::process::exit(1);
    }
}
