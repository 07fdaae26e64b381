//! The state that keys change: the table, its order, the filter and the first row. Without I/O.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::{
    frame::TopFrame,
    grid::{Datum, Grid},
    limits::FILTER_CHARS_MAX,
};

/// Rows that one page key moves by.
const PAGE_ROWS: usize = 10;

/// Choices of the person at the keyboard.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScreenState {
    /// Index of the table.
    pub(crate) table: usize,
    /// First row that is shown.
    pub(crate) first: usize,
    /// Column that orders the rows; `None` until it was chosen: the order of the server.
    pub(crate) column: Option<usize>,
    pub(crate) filter: String,
    /// True while keys change the filter.
    pub(crate) is_filtering: bool,
}

/// Consequence of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyOutcome {
    Redraw,
    Quit,
}

impl ScreenState {
    /// Applies a key to the state that `frame` is shown in.
    pub(crate) fn press(&mut self, key: KeyEvent, frame: &TopFrame) -> KeyOutcome {
        if key.kind == KeyEventKind::Release {
            return KeyOutcome::Redraw;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return KeyOutcome::Quit;
        }
        if self.is_filtering {
            self.edit_filter(key.code);
            return KeyOutcome::Redraw;
        }
        let tables = frame.tables.len().max(1);
        let columns = frame.tables.get(self.table).map_or(1, |grid| grid.columns.len().max(1));
        #[expect(clippy::wildcard_enum_match_arm, reason = "other keys do nothing")]
        match key.code {
            KeyCode::Char('q') => return KeyOutcome::Quit,
            KeyCode::Tab | KeyCode::Right | KeyCode::Char('l') => self.show_table((self.table + 1) % tables),
            KeyCode::BackTab | KeyCode::Left | KeyCode::Char('h') => {
                self.show_table((self.table + tables - 1) % tables)
            }
            KeyCode::Down | KeyCode::Char('j') => self.first = self.first.saturating_add(1),
            KeyCode::Up | KeyCode::Char('k') => self.first = self.first.saturating_sub(1),
            KeyCode::PageDown | KeyCode::Char(' ') => self.first = self.first.saturating_add(PAGE_ROWS),
            KeyCode::PageUp => self.first = self.first.saturating_sub(PAGE_ROWS),
            KeyCode::Home | KeyCode::Char('g') => self.first = 0,
            KeyCode::End | KeyCode::Char('G') => self.first = usize::MAX,
            KeyCode::Char('s') => self.column = Some(self.column.map_or(0, |column| (column + 1) % columns)),
            KeyCode::Char('/') => self.is_filtering = true,
            KeyCode::Esc => self.filter.clear(),
            _ => {}
        }
        KeyOutcome::Redraw
    }

    fn show_table(&mut self, table: usize) {
        (self.table, self.first, self.column) = (table, 0, None);
    }

    fn edit_filter(&mut self, code: KeyCode) {
        self.first = 0;
        #[expect(clippy::wildcard_enum_match_arm, reason = "other keys do nothing")]
        match code {
            KeyCode::Enter => self.is_filtering = false,
            KeyCode::Esc => (self.is_filtering, self.filter) = (false, String::new()),
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(letter) if self.filter.chars().count() < FILTER_CHARS_MAX => self.filter.push(letter),
            _ => {}
        }
    }

    /// Returns the rows to show, as the state chose them. Moves the first row so that `height` rows are full.
    pub(crate) fn arranged(&mut self, frame: &TopFrame, height: usize) -> Option<Grid> {
        let mut grid = frame.tables.get(self.table)?.clone();
        if let Some(column) = self.column {
            // Names ascend, and figures descend: the largest is looked for.
            let is_text = grid.rows.iter().any(|row| matches!(row.get(column), Some(Datum::Text(_))));
            grid.order(column, !is_text);
        }
        grid.keep(&self.filter);
        self.first = self.first.min(grid.rows.len().saturating_sub(height));
        Some(grid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::GridColumn;

    const COLUMNS: &[GridColumn] = &[GridColumn { name: "NAME", rank: 0 }, GridColumn { name: "COUNT", rank: 1 }];

    fn frame() -> TopFrame {
        let rows = |count: u64| (0..count).map(|at| vec![Datum::Text(format!("row-{at}")), Datum::Count(at % 7)]);
        let grid = |count| Grid { name: "a", columns: COLUMNS, rows: rows(count).collect(), note: None };
        TopFrame { tables: vec![grid(30), grid(3)], ..TopFrame::default() }
    }

    fn press(state: &mut ScreenState, codes: &[KeyCode]) -> KeyOutcome {
        codes.iter().fold(KeyOutcome::Redraw, |_, code| state.press(KeyEvent::from(*code), &frame()))
    }

    fn shown(state: &mut ScreenState) -> Vec<String> {
        let grid = state.arranged(&frame(), 5).expect("a table");
        grid.rows.iter().skip(state.first).take(5).map(|row| row[0].to_string()).collect()
    }

    #[test]
    fn keys_scroll_within_the_rows() {
        let mut state = ScreenState::default();
        press(&mut state, &[KeyCode::Up]);
        assert_eq!(shown(&mut state)[0], "row-0");
        press(&mut state, &[KeyCode::Down, KeyCode::Char('j'), KeyCode::PageDown]);
        assert_eq!(shown(&mut state)[0], "row-12");
        press(&mut state, &[KeyCode::End]);
        assert_eq!(shown(&mut state), ["row-25", "row-26", "row-27", "row-28", "row-29"]);
        press(&mut state, &[KeyCode::Char('k')]);
        assert_eq!(shown(&mut state)[0], "row-24", "the end is not left behind");
        press(&mut state, &[KeyCode::Tab]);
        assert_eq!(shown(&mut state).len(), 3);
        press(&mut state, &[KeyCode::Tab, KeyCode::BackTab]);
        assert_eq!(state.table, 1);
    }

    #[test]
    fn keys_filter_and_order() {
        let mut state = ScreenState::default();
        press(&mut state, &[KeyCode::Char('s'), KeyCode::Char('s')]);
        assert_eq!(shown(&mut state)[..2], ["row-6", "row-13"], "the largest first");
        let typed =
            [KeyCode::Char('/'), KeyCode::Char('q'), KeyCode::Backspace, KeyCode::Char('2'), KeyCode::Char('9')];
        assert_eq!(press(&mut state, &typed), KeyOutcome::Redraw);
        assert_eq!(shown(&mut state), ["row-29"]);
        assert_eq!(press(&mut state, &[KeyCode::Enter, KeyCode::Esc]), KeyOutcome::Redraw);
        assert_eq!(shown(&mut state).len(), 5);
        press(&mut state, &[KeyCode::Char('/')]);
        press(&mut state, &[KeyCode::Char('a'); 3 * FILTER_CHARS_MAX]);
        assert_eq!(state.filter.len(), FILTER_CHARS_MAX);
    }

    #[test]
    fn q_and_control_c_quit() {
        assert_eq!(press(&mut ScreenState::default(), &[KeyCode::Char('q')]), KeyOutcome::Quit);
        let mut state = ScreenState { is_filtering: true, ..ScreenState::default() };
        let stop = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(state.press(stop, &frame()), KeyOutcome::Quit);
    }
}
