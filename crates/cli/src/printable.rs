//! What a server says, made harmless for a terminal: a server may be another than the user believes, and a key may be
//! anything. Values are the user's own, and go out as they are.

/// The text with every control character, and every character that changes the direction of text, as `\u{XX}`.
/// Newlines too.
pub(crate) fn printable(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        if is_obeyed(letter) {
            safe.extend(letter.escape_unicode());
        } else {
            safe.push(letter);
        }
    }
    safe
}

/// The same of each line.
pub(crate) fn printable_lines(text: &str) -> String {
    text.split('\n').map(printable).collect::<Vec<_>>().join("\n")
}

/// The same of bytes that may be no text: those that are none as `\xXX`.
pub(crate) fn printable_bytes(bytes: &[u8]) -> String {
    let mut safe = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        safe.push_str(&printable(chunk.valid()));
        for byte in chunk.invalid() {
            safe.push_str(&format!("\\x{byte:02x}"));
        }
    }
    safe
}

/// Whether a terminal does something else with it than show it.
pub(crate) fn is_obeyed(letter: char) -> bool {
    letter.is_control() || is_layout(letter)
}

/// Embeddings, overrides, isolates and marks of the bidirectional algorithm (UAX #9, 2), and separators of lines.
fn is_layout(letter: char) -> bool {
    matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{is_layout, printable, printable_bytes, printable_lines};

    #[test]
    fn what_moves_the_cursor_or_turns_text_around_is_shown_as_its_number() {
        assert_eq!(printable("a\u{1b}[2Jb\r\n\t\u{7f}\u{9b}é"), "a\\u{1b}[2Jb\\u{d}\\u{a}\\u{9}\\u{7f}\\u{9b}é");
        assert_eq!(printable("a\u{202e}b\u{2066}"), "a\\u{202e}b\\u{2066}");
        assert_eq!(printable_lines("a\n\u{1b}b\n"), "a\n\\u{1b}b\n");
        assert_eq!(printable_bytes(b"k\xff\x9b\x1b\xc3\xa9"), "k\\xff\\x9b\\u{1b}é");
    }

    proptest! {
        #[test]
        fn nothing_that_a_terminal_obeys_is_left(bytes: Vec<u8>) {
            let safe = printable_bytes(&bytes);
            prop_assert!(!safe.chars().any(|letter| letter.is_control() || is_layout(letter)));
        }

        #[test]
        fn what_is_harmless_stays(text in "[ -~é]*") {
            prop_assert_eq!(printable(&text), text);
        }
    }
}
