//! What comes from operators, clients and peers.

use kvorum_fuzzing::{byte, split};

use crate::api_key::ApiKey;
use crate::file::parse_auth_file;
use crate::prefix::Prefix;
use crate::rights::DataRight;
use crate::role::{Grant, Role};

/// The text of a file of keys: taken whole, or refused with a line of the text.
pub fn auth_files(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match parse_auth_file(text) {
        Ok(file) => assert!(file.keys.iter().all(|key| key.role < file.roles.len())),
        Err(error) => {
            assert!(!error.reason.is_empty(), "refused without a word");
            assert!((1..=text.matches('\n').count() + 1).contains(&error.line), "no line {}", error.line);
        }
    }
}

/// The text of a key: what is taken is written the same, but for the case of its checksum.
pub fn api_keys(data: &[u8]) {
    if let Ok(key) = ApiKey::parse(data) {
        assert!(key.text().as_bytes().eq_ignore_ascii_case(data));
    }
}

/// Grants against a plain model of them: prefixes of a few bytes of a small alphabet, and every key and range of it.
pub fn grants(mut data: &[u8]) {
    const ALPHABET: [u8; 4] = [0, b'a', 254, 255];
    const RIGHTS: [DataRight; 3] = [DataRight::Read, DataRight::Write, DataRight::Delete];
    let text = |data: &mut &[u8]| {
        let length = usize::from(byte(data) % 4);
        split(data, length)
            .iter()
            .map(|byte| ALPHABET.get(usize::from(byte % 4)).copied().unwrap_or_default())
            .collect::<Vec<u8>>()
    };
    let mut granted = Vec::new();
    for _ in 0..byte(&mut data) % 4 {
        let (prefix, rights) = (text(&mut data), byte(&mut data));
        let allow: Vec<DataRight> =
            RIGHTS.iter().enumerate().filter(|(at, _)| rights >> at & 1 == 1).map(|(_, right)| *right).collect();
        granted.push((prefix, allow));
    }
    let grants =
        granted.iter().map(|(prefix, allow)| Grant { prefix: Prefix::new(prefix.clone()), allow: allow.clone() });
    let role = Role { grants: grants.collect(), ..Role::default() };
    let (key, end) = (text(&mut data), text(&mut data));
    for right in RIGHTS {
        let having = || granted.iter().filter(move |(_, allow)| allow.contains(&right));
        assert_eq!(role.allows(right, &key), having().any(|(prefix, _)| key.starts_with(prefix)));
        // A range lies within a prefix if its first key does, and the greatest keys below its end do.
        let within = |prefix: &Vec<u8>, end: Option<&[u8]>| {
            key.starts_with(prefix) && greatest_below(end).is_none_or(|last| last < key || last.starts_with(prefix))
        };
        assert_eq!(role.covers(right, &key, Some(&end)), having().any(|(prefix, _)| within(prefix, Some(&end))));
        assert_eq!(role.covers(right, &key, None), having().any(|(prefix, _)| within(prefix, None)));
    }
}

/// A key below `end` above which there is none but longer ones of it. `None`: there is no key below `end`.
fn greatest_below(end: Option<&[u8]>) -> Option<Vec<u8>> {
    const LONG: usize = 16;
    match end {
        None => Some(vec![255; LONG]),
        Some(end) => match end.split_last()? {
            (0, front) => Some(front.to_vec()),
            (last, front) => Some([front, &[last - 1], &[255; LONG]].concat()),
        },
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn auth_files() {
        kvorum_fuzzing::holds("auth_files", super::auth_files);
    }

    #[test]
    fn api_keys() {
        kvorum_fuzzing::holds("api_keys", super::api_keys);
    }

    #[test]
    fn grants() {
        kvorum_fuzzing::holds("grants", super::grants);
    }
}
