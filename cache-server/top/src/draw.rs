//! Draws a frame into a terminal: the summary, memory over time, the names of the tables, and one table.

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::{Line, Span},
    widgets::{Paragraph, Sparkline},
};

use crate::{
    frame::{TopFrame, summary_line},
    grid::{Datum, Grid},
    screen::ScreenState,
};

/// Columns above which memory stands beside the summary, and not below it.
const WIDE: u16 = 110;

/// Columns of memory beside the summary.
const MEMORY_WIDTH: u16 = 40;

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const ALARM: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);

const HELP: &str = "q quit  tab table  \u{2191}\u{2193} scroll  s order  / filter";

/// Draws `contents` as `state` chooses. Moves the first row of the state into the table.
pub(crate) fn draw(target: &mut Frame<'_>, contents: &TopFrame, state: &mut ScreenState) {
    let area = target.area();
    let mut lines = vec![Line::styled(contents.title.as_str(), BOLD)];
    lines.extend(contents.problem.iter().map(|problem| Line::styled(summary_line("problem", problem), ALARM)));
    lines.extend(contents.lines.iter().map(|(name, text)| {
        let is_alarm = *name == "health" && !text.starts_with("ready");
        Line::styled(summary_line(name, text), if is_alarm { ALARM } else { Style::new() })
    }));
    let height = u16::try_from(lines.len()).unwrap_or(u16::MAX);
    let is_wide = area.width >= WIDE;
    let below = u16::from(!is_wide && !contents.memory.is_empty());
    let heights = [Constraint::Length(height), Constraint::Length(below), Constraint::Length(1), Constraint::Fill(1)];
    let [summary, memory, tabs, rest] = Layout::vertical(heights).areas(area);
    let [table, help] = Layout::vertical([Constraint::Fill(1), Constraint::Length(1)]).areas(rest);
    let [summary, beside] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Length(if is_wide { MEMORY_WIDTH } else { 0 })])
            .areas(summary);
    target.render_widget(Paragraph::new(lines), summary);
    draw_memory(target, &contents.memory, if is_wide { beside } else { memory });
    draw_tabs(target, contents, state, tabs);
    // The names of the columns, and a note, are above the rows.
    let has_note = contents.tables.get(state.table).is_some_and(|grid| grid.note.is_some());
    let rows = usize::from(table.height).saturating_sub(1 + usize::from(has_note));
    if let Some(grid) = state.arranged(contents, rows) {
        draw_table(target, &grid, state.first, table);
    }
    let filter = format!("/{}\u{2588}", state.filter);
    target.render_widget(Paragraph::new(if state.is_filtering { filter.as_str() } else { HELP }), help);
}

fn draw_memory(target: &mut Frame<'_>, memory: &[u64], area: Rect) {
    let Some(most) = memory.iter().max() else { return };
    let (title, bars) = if area.height > 1 {
        let [title, bars] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
        (format!("memory, at most {}", Datum::Bytes(*most)), (title, bars))
    } else {
        let title = summary_line("memory", &format!("<= {} ", Datum::Bytes(*most)));
        let width = u16::try_from(title.len()).unwrap_or(u16::MAX);
        let [left, bars] = Layout::horizontal([Constraint::Length(width), Constraint::Fill(1)]).areas(area);
        (title, (left, bars))
    };
    let (title_area, bars) = bars;
    target.render_widget(Paragraph::new(title), title_area);
    let newest = &memory[memory.len().saturating_sub(usize::from(bars.width))..];
    target.render_widget(Sparkline::default().data(newest).max(*most), bars);
}

fn draw_tabs(target: &mut Frame<'_>, contents: &TopFrame, state: &ScreenState, area: Rect) {
    let mut spans = Vec::new();
    for (at, grid) in contents.tables.iter().enumerate() {
        let style = if at == state.table { BOLD.add_modifier(Modifier::REVERSED) } else { Style::new() };
        spans.extend([Span::styled(format!(" {} {} ", grid.name, grid.rows.len()), style), Span::raw(" ")]);
    }
    let grid = contents.tables.get(state.table);
    if let Some(column) = state.column.and_then(|column| grid?.columns.get(column)) {
        spans.push(Span::raw(format!("by {} ", column.name)));
    }
    if !state.filter.is_empty() {
        spans.push(Span::raw(format!("with \"{}\"", state.filter)));
    }
    target.render_widget(Line::from(spans), area);
}

fn draw_table(target: &mut Frame<'_>, grid: &Grid, first: usize, area: Rect) {
    let mut lines = Vec::new();
    lines.extend(grid.note.iter().map(|note| Line::styled(note.as_str(), ALARM)));
    let texts = grid.lines(usize::from(area.width));
    let mut texts = texts.into_iter();
    if !grid.rows.is_empty() {
        lines.extend(texts.next().map(|names| Line::styled(names, BOLD)));
    }
    lines.extend(texts.skip(first).take(usize::from(area.height)).map(Line::raw));
    target.render_widget(Paragraph::new(lines), area);
}

#[cfg(test)]
mod tests {
    use ratatui::{
        Terminal,
        backend::TestBackend,
        crossterm::event::{KeyCode, KeyEvent},
    };

    use super::*;
    use crate::frame::{ReadingHistory, tests::reading};

    fn contents(problem: Option<&str>) -> TopFrame {
        let mut history = ReadingHistory::default();
        history.add(reading(0));
        history.add(reading(2));
        history.frame("http://127.0.0.1:8001", problem)
    }

    /// The lines of a screen after keys.
    fn screen(width: u16, height: u16, contents: &TopFrame, keys: &[KeyCode]) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
        let mut state = ScreenState::default();
        for key in keys {
            state.press(KeyEvent::from(*key), contents);
        }
        terminal.draw(|target| draw(target, contents, &mut state)).expect("memory cannot fail");
        let cells = terminal.backend().buffer().content();
        let lines = cells.chunks(usize::from(width).max(1));
        lines.map(|line| line.iter().map(|cell| cell.symbol()).collect::<String>().trim_end().to_owned()).collect()
    }

    #[test]
    fn a_wide_terminal_has_memory_beside_the_summary() {
        let lines = screen(140, 24, &contents(None), &[]);
        assert!(lines[0].starts_with("cache-server at http://127.0.0.1:8001, up 23m22s"), "{lines:#?}");
        assert!(lines[0].ends_with("memory, at most 100.0 MiB"), "{lines:#?}");
        assert!(lines[4].contains("100-999: 1, 1000+: 0 events") && lines[4].contains("██"), "{lines:#?}");
        assert!(lines[9].starts_with(" types 1   watches 2   flow control 1"), "{lines:#?}");
        assert!(lines[10].ends_with("SENT  HELD BY") && lines[11].contains("20.0"), "{lines:#?}");
        assert!(lines[23].starts_with("q quit"), "{lines:#?}");
    }

    #[test]
    fn a_narrow_terminal_leaves_columns_out() {
        let lines = screen(60, 20, &contents(None), &[]);
        assert!(lines[3].starts_with("watches  3: 2 live, 0 catching up, 0 initial, 1 parked"), "{lines:#?}");
        assert!(lines[9].starts_with("memory   <= 100.0 MiB ██"), "{lines:#?}");
        assert_eq!(lines[11], "TYPE  OBJECTS  WATCHES  CHANGES/S    BYTES  COVERS     SENT", "{lines:#?}");
        let watches = screen(60, 20, &contents(None), &[KeyCode::Tab]);
        assert_eq!(watches[11], "the oldest 2 of 3");
        assert_eq!(watches[12], "USER           TYPE  STATE   WAITS FOR           BEHIND", "{watches:#?}");
        assert!(watches[14].starts_with("slow"), "{watches:#?}");
    }

    #[test]
    fn keys_choose_what_is_shown() {
        let keys = [KeyCode::Tab, KeyCode::Char('s'), KeyCode::Char('/'), KeyCode::Char('k'), KeyCode::Char('u')];
        let lines = screen(140, 24, &contents(None), &keys);
        assert_eq!(lines[9].trim(), "types 1   watches 2   flow control 1  by USER with \"ku\"", "{lines:#?}");
        assert!(lines[12].starts_with("system:node:a") && lines[13].is_empty(), "{lines:#?}");
        assert_eq!(lines[23], "/ku█");
    }

    #[test]
    fn a_server_that_went_away_is_said_above_its_last_state() {
        let lines = screen(60, 20, &contents(Some("connection refused; connecting again")), &[]);
        assert_eq!(lines[1], "problem  connection refused; connecting again");
        assert!(lines[2].starts_with("health   ready"), "{lines:#?}");
        let empty = ReadingHistory::default().frame("http://a:1", Some("connecting"));
        assert_eq!(screen(40, 4, &empty, &[])[..2], ["cache-server at http://a:1", "problem  connecting"]);
    }

    #[test]
    fn no_size_is_too_small() {
        for (width, height) in [(0, 0), (1, 1), (1, 30), (200, 2), (9, 12), (109, 11), (110, 11)] {
            for table in 0..3 {
                screen(width, height, &contents(Some("x")), &vec![KeyCode::Tab; table]);
            }
        }
    }
}
