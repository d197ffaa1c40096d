//! `hostler top`: the machine with its holders, live on a terminal, or once.

mod choice;
mod cpus;
mod filter;
mod head;
mod history;
mod keyboard;
mod line;
mod load;
mod order;
mod page;
mod screen;
mod tables;
mod terminal;
mod view;

use std::{
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use clap::ValueEnum;
use hostler_api::Chain;
use hostler_cli::reader::is_output_gone;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH},
    flag,
};

use self::{
    choice::{KeyEffect, TopChoice},
    history::TopHistory,
    keyboard::{KeyPress, Keyboard, KeyboardNews},
    load::CpuLoads,
    terminal::LiveTerminal,
    view::{PageView, TopTable},
};
use super::{
    CliFailure, CliOutcome,
    client::{ClientError, DaemonArgs, DaemonClient, segment},
    output::{write_json, write_yaml},
    parts::{DocumentParts, PartsShape, shape},
    picture,
    plain::for_people,
    screen as output_screen,
};
use crate::{units::utc, usage::holders::MachineUsage};

/// Time from one frame to the next.
const FRAME: Duration = Duration::from_secs(1);
/// How soon a signal is heeded that comes right before the keyboard is waited for. Others are at once, as keys are.
const SIGNALS_SEEN: Duration = Duration::from_millis(250);
/// How long an answer is waited for: longer, and keys would seem dead.
const PATIENCE: Duration = Duration::from_secs(2);
/// The number of columns where none is known.
const USUAL_COLUMNS: usize = 80;

#[derive(clap::Args, Debug)]
#[command(after_help = HELP)]
pub(super) struct TopArgs {
    /// Print it once and end; so it is too where standard output is no terminal
    #[arg(long)]
    once: bool,
    /// The holders whose letters and table are shown first
    #[arg(long, value_enum, default_value_t)]
    by: TopTable,
    /// Shape of the answer
    #[arg(short, long, value_parser = shape::<TopFormat>(), default_value = "screen")]
    output: TopFormat,
    #[command(flatten)]
    daemon: DaemonArgs,
}

const HELP: &str = "Keys: c claims, n namespaces, u NUMA nodes, Tab the next of these; / filters, s sorts by the next column, \
    r the other way round; arrows, PgUp, PgDn, Home and End move; ? explains, Esc leads back, q ends.\nSigns: a-z A-Z holders, . free, : kept idle for a holder, | blocked, = system, ~ drained, ! unhealthy, \
    - offline. Load of a CPU: 0 to 9, in tenths.";

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
enum TopFormat {
    /// For people
    #[default]
    Screen,
    /// A drawing of the machine, with devices, holders and distances
    Svg,
    /// For programs, as JSON
    Json,
    /// For programs, as YAML
    Yaml,
    /// Chosen parts of it
    #[value(skip)]
    Parts(&'static DocumentParts),
}

impl PartsShape for TopFormat {
    fn of_parts(parts: &'static DocumentParts) -> Self {
        Self::Parts(parts)
    }
}

pub(super) fn run(args: &TopArgs, out: &mut dyn Write) -> Result<CliOutcome, CliFailure> {
    let client = args.daemon.client()?.patient(PATIENCE);
    // Without a daemon there is nothing to show; one that goes away later is waited for.
    let usage = usage(&client)?;
    match args.output {
        TopFormat::Svg => out.write_all(picture::svg(&for_people(usage)).as_bytes())?,
        TopFormat::Json => write_json(&usage, out)?,
        TopFormat::Yaml => write_yaml(&usage, out)?,
        TopFormat::Parts(parts) => parts.write(&usage, out)?,
        TopFormat::Screen if args.once || !output_screen::is_terminal() => once(usage, args.by, out)?,
        TopFormat::Screen => live(&client, usage, args.by)?,
    }
    Ok(CliOutcome::Done)
}

fn usage(client: &DaemonClient) -> Result<MachineUsage, ClientError> {
    client.get("/v1/usage")
}

fn once(usage: MachineUsage, table: TopTable, out: &mut dyn Write) -> Result<(), CliFailure> {
    let mut loads = CpuLoads::new(usage.machine.is_here);
    if usage.machine.is_here {
        // A load is a difference between two moments.
        thread::sleep(CpuLoads::SHORTEST);
        loads.refresh();
    }
    let usage = for_people(usage);
    let view = PageView::of(&usage, loads.percent(), table);
    let columns = output_screen::width().unwrap_or(USUAL_COLUMNS);
    for line in page::page(&view, columns).lines() {
        writeln!(out, "{}", line.text().trim_end())?;
    }
    Ok(())
}

/// Shows frame after frame, until a key or a signal ends it. The terminal is as it was before, however it ends.
fn live(client: &DaemonClient, usage: MachineUsage, table: TopTable) -> Result<(), CliFailure> {
    let ended = stop_signals().map_err(|source| CliFailure::step("listen to signals", source))?;
    let keyboard = Keyboard::new();
    let mut terminal = LiveTerminal::open().map_err(|source| CliFailure::step("set the terminal up", source))?;
    let mut top = LiveTop {
        loads: CpuLoads::new(usage.machine.is_here),
        usage,
        choice: TopChoice { table, ..TopChoice::default() },
        history: TopHistory::default(),
        away: None,
        colours: output_screen::has_colours(),
    };
    loop {
        match top.draw(&mut terminal) {
            Err(_) if is_output_gone() => return Ok(()),
            drawn => drawn?,
        }
        match top.heed(&ended, &keyboard) {
            Ok(TopStep::Continue) => {}
            // A terminal that has gone away has no reader.
            Ok(TopStep::End) | Err(_) => return Ok(()),
        }
        top.look(client);
    }
}

/// Becomes true with the first signal that asks to end. The second one ends the process as if nothing listened to it.
fn stop_signals() -> io::Result<Arc<AtomicBool>> {
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
        flag::register_conditional_default(signal, ended.clone())?;
        flag::register(signal, ended.clone())?;
    }
    // A terminal of another size is drawn at once: the signal ends the wait for keys.
    flag::register(SIGWINCH, Arc::default())?;
    Ok(ended)
}

/// The step that follows a frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum TopStep {
    Continue,
    End,
}

/// The live view: the machine, and how it is shown.
#[derive(Debug)]
struct LiveTop {
    usage: MachineUsage,
    loads: CpuLoads,
    choice: TopChoice,
    history: TopHistory,
    /// Since when the daemon does not answer, and why.
    away: Option<String>,
    colours: bool,
}

impl LiveTop {
    fn draw(&mut self, terminal: &mut LiveTerminal) -> Result<(), CliFailure> {
        if !terminal.takes_text() {
            return Ok(());
        }
        let (load_line, changes) = (self.history.load_line(), self.history.change_lines(SystemTime::now()));
        let TopChoice { table, order, filter, is_typing, has_help, .. } = &self.choice;
        let view = PageView {
            usage: &self.usage,
            loads: self.loads.percent(),
            load_line: &load_line,
            changes: &changes,
            table: *table,
            order: Some(*order),
            filter: Some(filter).filter(|filter| *is_typing || !filter.is_empty()),
            is_typing: *is_typing,
            away: self.away.as_deref(),
            help: *has_help,
        };
        // The screen knows how far there is something to see.
        let (mut scroll, colours) = (self.choice.scroll, self.colours);
        let drawn = terminal.draw(|buffer| screen::draw(&view, &mut scroll, colours, buffer));
        self.choice.scroll = scroll;
        drawn.map_err(|source| CliFailure::step("draw", source))
    }

    /// Heeds keys until it is time for the next frame. What a key changes is drawn by the caller at the next turn.
    fn heed(&mut self, ended: &AtomicBool, keyboard: &Keyboard) -> io::Result<TopStep> {
        let due = Instant::now() + FRAME;
        loop {
            if ended.load(Ordering::Relaxed) {
                return Ok(TopStep::End);
            }
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(TopStep::Continue);
            }
            match keyboard.wait(left.min(SIGNALS_SEEN))? {
                KeyboardNews::Quiet => {}
                KeyboardNews::Interrupted if ended.load(Ordering::Relaxed) => {}
                KeyboardNews::Interrupted => return Ok(TopStep::Continue),
                KeyboardNews::Pressed(keys) => match self.press(&keys) {
                    KeyEffect::Nothing => {}
                    KeyEffect::Show => return Ok(TopStep::Continue),
                    KeyEffect::End => return Ok(TopStep::End),
                },
            }
        }
    }

    /// Heeds keys that came together: the strongest effect is that of all.
    fn press(&mut self, keys: &[KeyPress]) -> KeyEffect {
        let mut effect = KeyEffect::Nothing;
        for key in keys {
            match self.choice.press(*key) {
                KeyEffect::Nothing => {}
                KeyEffect::Show => effect = KeyEffect::Show,
                KeyEffect::End => return KeyEffect::End,
            }
        }
        effect
    }

    /// Asks the daemon anew. One that is away leaves what was seen last, and comes back by itself.
    fn look(&mut self, client: &DaemonClient) {
        match usage(client) {
            Ok(usage) => {
                (self.usage, self.away) = (usage, None);
                let after = self.history.cursor().map(|cursor| format!("?after={}", segment(cursor)));
                // A machine without its latest changes is still worth a look.
                if let Ok(events) = client.get(&format!("/v1/events{}", after.unwrap_or_default())) {
                    self.history.note_changes(events);
                }
            }
            Err(error) if self.away.is_none() => {
                self.away = Some(format!("{} since {}", Chain(&error), utc(SystemTime::now())));
            }
            Err(_) => {}
        }
        self.loads.refresh();
        self.history.note_load(self.loads.mean(), Instant::now());
    }
}
