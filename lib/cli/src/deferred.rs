//! Subcommands that are described when they are called.

use clap::{ArgMatches, Args, Command, Error, FromArgMatches, Id};

/// Arguments of a subcommand, described once the subcommand is called or shown. A program has hundreds of arguments, and one
/// call is about a few of them: to describe all takes longer than to start.
///
/// The one line about the subcommand stands in the list of all subcommands: it belongs to the variant that has this.
#[derive(Debug)]
pub struct Deferred<A>(pub A);

impl<A: Args> Args for Deferred<A> {
    fn group_id() -> Option<Id> {
        A::group_id()
    }

    fn augment_args(command: Command) -> Command {
        command.defer(A::augment_args)
    }

    fn augment_args_for_update(command: Command) -> Command {
        command.defer(A::augment_args_for_update)
    }
}

impl<A: FromArgMatches> FromArgMatches for Deferred<A> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        A::from_arg_matches(matches).map(Self)
    }

    fn from_arg_matches_mut(matches: &mut ArgMatches) -> Result<Self, Error> {
        A::from_arg_matches_mut(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        self.0.update_from_arg_matches(matches)
    }
}
