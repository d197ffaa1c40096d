//! A look at a tree that fails as a whole with a file that cannot be read.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use super::{
    OpenFolder, ReadFailure, SysRoot, last_name,
    memory::{ATTRIBUTE, Answers, EXISTS, LINK, LookMemory, NAMES, Question, SERIAL},
    place_in_sys,
};
use crate::TreeWarning;

/// A tree while it is looked at. An answer is present or absent here, and an empty folder is one that is not there;
/// the first answer that is neither makes the whole look fail: what was made of the answers never leaves
/// [`SysRoot::look`]. Nothing can be written through it: an action has to rest on a look that has ended well.
#[derive(Debug)]
pub struct TreeReading<'a> {
    root: &'a SysRoot,
    details: MissingDetails,
    /// The folder that was last listed or entered.
    near: RefCell<Option<OpenFolder>>,
    /// Answers that this look or the last one got, where they are remembered.
    answers: Option<RefCell<Answers>>,
    failure: RefCell<Option<ReadFailure>>,
    warnings: RefCell<Vec<TreeWarning>>,
}

/// Effect on the whole look of a detail that cannot be read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum MissingDetails {
    /// A warning is recorded.
    Warn,
    /// The look fails: it has no reader for warnings.
    Fail,
}

impl SysRoot {
    /// Looks at the tree.
    ///
    /// # Errors
    /// When something that is there, or may be, could not be read, be it a [`detail`](TreeReading::detail).
    pub fn look<T>(&self, look: impl FnOnce(&TreeReading<'_>) -> T) -> Result<T, ReadFailure> {
        TreeReading::new(self, MissingDetails::Fail).end(look).map(|(found, ..)| found)
    }

    /// Looks at the tree; details that could not be read become warnings.
    ///
    /// # Errors
    /// When anything else that is there, or may be, could not be read.
    pub fn look_warned<T>(
        &self,
        look: impl FnOnce(&TreeReading<'_>) -> T,
    ) -> Result<(T, Vec<TreeWarning>), ReadFailure> {
        TreeReading::new(self, MissingDetails::Warn).end(look).map(|(found, warnings, _)| (found, warnings))
    }

    /// Looks as [`SysRoot::look_warned`] does, and remembers what was read.
    ///
    /// # Errors
    /// When something that is there, or may be, could not be read and is more than a detail.
    pub fn look_remembering<T>(
        &self,
        memory: &LookMemory,
        look: impl FnOnce(&TreeReading<'_>) -> T,
    ) -> Result<(T, Vec<TreeWarning>), ReadFailure> {
        // What an earlier look has found is not to outlive one that fails.
        drop(memory.take());
        self.look_knowing(Answers::default(), memory, look)
    }

    /// Looks once more after these devices went (paths below `/sys`, as uevents have them). Read are what they can
    /// have touched and what no look has read; all else is as `memory` has it.
    ///
    /// Nothing can tell what a device touches: a look at the whole has to follow.
    ///
    /// # Errors
    /// When something that is there, or may be, could not be read and is more than a detail.
    pub fn look_after_removal<T>(
        &self,
        memory: &LookMemory,
        removed: &BTreeSet<String>,
        look: impl FnOnce(&TreeReading<'_>) -> T,
    ) -> Result<(T, Vec<TreeWarning>), ReadFailure> {
        let mut answers = memory.take();
        answers.forget(removed);
        self.look_knowing(answers, memory, look)
    }

    fn look_knowing<T>(
        &self,
        answers: Answers,
        memory: &LookMemory,
        look: impl FnOnce(&TreeReading<'_>) -> T,
    ) -> Result<(T, Vec<TreeWarning>), ReadFailure> {
        let reading =
            TreeReading { answers: Some(RefCell::new(answers)), ..TreeReading::new(self, MissingDetails::Warn) };
        let (found, warnings, answers) = reading.end(look)?;
        answers.into_iter().for_each(|answers| memory.put(answers));
        Ok((found, warnings))
    }
}

impl<'a> TreeReading<'a> {
    fn new(root: &'a SysRoot, details: MissingDetails) -> Self {
        let (near, failure, warnings) = (RefCell::default(), RefCell::default(), RefCell::default());
        Self { root, details, near, answers: None, failure, warnings }
    }

    /// The result of a look, with its warnings, and the answers where they are remembered.
    fn end<T>(self, look: impl FnOnce(&Self) -> T) -> Result<(T, Vec<TreeWarning>, Option<Answers>), ReadFailure> {
        let found = look(&self);
        let mut warnings = self.warnings.into_inner();
        warnings.sort_unstable();
        warnings.dedup();
        let answers = self.answers.map(RefCell::into_inner);
        self.failure.into_inner().map_or(Ok((found, warnings, answers)), Err)
    }

    /// The tree, for callers that read it in a way of their own. A failure there is to be handed to
    /// [`fail`](Self::fail).
    pub fn root(&self) -> &'a SysRoot {
        self.root
    }

    /// Makes the look fail, unless another failure has.
    pub fn fail(&self, failure: ReadFailure) {
        self.failure.borrow_mut().get_or_insert(failure);
    }

    /// Warns of something that makes no sense, and what follows from it. `path` is relative to the root.
    pub fn warn(&self, path: impl AsRef<Path>, reason: impl Into<String>) {
        let path = format!("/{}", path.as_ref().display());
        self.warnings.borrow_mut().push(TreeWarning { path, reason: shortened(reason.into()) });
    }

    /// The meaning of `text`, which stands in the file at `path`. A text that is not `expected` (`a number`) leaves a
    /// warning: otherwise garbage would look absent.
    pub fn understood<T>(
        &self,
        path: impl AsRef<Path>,
        text: &str,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let meaning = parse(text);
        if meaning.is_none() {
            self.warn(path, format!("{text:?} is not {expected}; taken as absent"));
        }
        meaning
    }

    /// A sysfs attribute; see [`SysRoot::attribute`].
    pub fn attribute(&self, relative: impl AsRef<Path>) -> Option<String> {
        self.answer(|root| self.attribute_near(root, relative))
    }

    /// The text of any file; see [`SysRoot::text`].
    pub fn text(&self, relative: impl AsRef<Path>) -> Option<String> {
        self.answer(|root| root.text(relative))
    }

    /// The beginning of a file.
    pub fn first_bytes(&self, relative: impl AsRef<Path>, most: u64) -> Option<Vec<u8>> {
        self.answer(|root| root.first_bytes(relative, most))
    }

    /// The names in a folder, sorted. Attributes below it are then found from there, and those that are not among the
    /// names are asked for no more.
    pub fn names(&self, relative: impl AsRef<Path>) -> Vec<String> {
        let relative = relative.as_ref();
        self.answer(|root| {
            self.remembered(&NAMES, relative, || {
                let (names, folder) = root.listed(self.near.borrow().as_ref(), relative)?;
                if let Some(folder) = folder {
                    self.near.replace(Some(folder));
                }
                Ok(names)
            })
        })
    }

    /// Says that many attributes below a folder are read next: they are found from there. One that is not there is none
    /// to find them from.
    pub fn enter(&self, relative: impl AsRef<Path>) {
        if self.answers.as_ref().is_some_and(|answers| answers.borrow().are_recalled) {
            return;
        }
        self.near.replace(self.root.folder.folder(relative.as_ref()).ok());
    }

    /// True if something is there.
    pub fn exists(&self, relative: impl AsRef<Path>) -> bool {
        let relative = relative.as_ref();
        self.answer(|root| self.remembered(&EXISTS, relative, || root.exists(relative)))
    }

    /// Target of a symbolic link, unresolved.
    pub fn link(&self, relative: impl AsRef<Path>) -> Option<PathBuf> {
        let relative = relative.as_ref();
        self.answer(|root| {
            let read = || match &*self.near.borrow() {
                Some(near) if near.lacks(relative) => Ok(None),
                near => root.link_near(near.as_ref(), relative),
            };
            self.remembered(&LINK, relative, read)
        })
    }

    /// The last component of a symbolic link's target (`driver`, `iommu_group`).
    pub fn link_name(&self, relative: impl AsRef<Path>) -> Option<String> {
        self.link(relative).as_deref().and_then(last_name)
    }

    /// The place that a symbolic link names; see [`SysRoot::target`].
    pub fn target(&self, relative: impl AsRef<Path>) -> Option<PathBuf> {
        self.link(&relative).and_then(|target| place_in_sys(relative.as_ref(), &target))
    }

    /// The serial number that `read` finds in the configuration space at `config`.
    pub(crate) fn serial(
        &self,
        config: &Path,
        read: impl Fn(&SysRoot) -> Result<Option<u64>, ReadFailure>,
    ) -> Option<u64> {
        let read = |root: &SysRoot| match read(root) {
            Err(failure) if failure.is_absence() => Ok(None),
            answer => answer,
        };
        self.answer(|root| self.remembered(&SERIAL, config, || read(root)))
    }

    /// An attribute that tells no more than a detail: one that a driver has to ask the hardware for, or that only root
    /// may read. Where it cannot be read it is absent, with a warning.
    pub fn detail(&self, relative: impl AsRef<Path>) -> Option<String> {
        self.detail_or_warning(self.attribute_near(self.root, relative))
    }

    /// A detail from any file; see [`detail`](Self::detail).
    pub fn detail_bytes(&self, relative: impl AsRef<Path>, most: u64) -> Option<Vec<u8>> {
        self.detail_or_warning(self.root.first_bytes(relative, most))
    }

    /// An attribute of which a driver's refusal says something by itself, as EBUSY of a released port does. The caller
    /// interprets the refusal; a failure to look at all still makes the look fail.
    ///
    /// # Errors
    /// The driver's error.
    pub fn driver_answer(&self, relative: impl AsRef<Path>) -> Result<Option<String>, ReadFailure> {
        match self.attribute_near(self.root, relative) {
            Err(failure) if failure.is_shortage() => {
                self.fail(failure);
                Ok(None)
            }
            answer => answer,
        }
    }

    fn attribute_near(&self, root: &SysRoot, relative: impl AsRef<Path>) -> Result<Option<String>, ReadFailure> {
        let relative = relative.as_ref();
        let read = || match &*self.near.borrow() {
            Some(near) if near.lacks(relative) => Ok(None),
            near => root.attribute_near(near.as_ref(), relative),
        };
        self.remembered(&ATTRIBUTE, relative, read)
    }

    /// The answer that there is, or that of `read`, which is kept where answers are remembered.
    fn remembered<T>(
        &self,
        question: &Question<T>,
        relative: &Path,
        read: impl FnOnce() -> Result<T, ReadFailure>,
    ) -> Result<T, ReadFailure> {
        let Some(answers) = &self.answers else { return read() };
        if let Some(known) = answers.borrow().get(question, relative) {
            return Ok(known);
        }
        let answer = read()?;
        answers.borrow_mut().keep(question, relative, &answer);
        Ok(answer)
    }

    fn detail_or_warning<T>(&self, answer: Result<Option<T>, ReadFailure>) -> Option<T> {
        match answer {
            Err(failure) if self.details == MissingDetails::Warn && !failure.is_shortage() => {
                self.warnings.borrow_mut().push(failure.into_warning("taken as absent"));
                None
            }
            answer => self.answer(|_| answer),
        }
    }

    /// Unwraps an answer or remembers its failure. Later questions are asked all the same: a capture copies what was
    /// asked for.
    fn answer<T: Default>(&self, ask: impl FnOnce(&SysRoot) -> Result<T, ReadFailure>) -> T {
        ask(self.root).unwrap_or_else(|failure| {
            self.fail(failure);
            T::default()
        })
    }
}

/// Shortens a reason, which quotes what it is about and can be as long as a file. The beginning tells which one it is.
fn shortened(reason: String) -> String {
    const MOST_CHARS: usize = 500;
    match reason.char_indices().nth(MOST_CHARS) {
        Some((end, _)) => format!("{}… ({} bytes in all)", &reason[..end], reason.len()),
        None => reason,
    }
}
