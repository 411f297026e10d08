//! Finds heads of HTTP/1 that have both Content-Length and Transfer-Encoding.

use std::io::BufRead;

const LENGTH: &[u8] = b"content-length:";
const ENCODING: &[u8] = b"transfer-encoding:";

/// Looks for heads with both fields, in bytes that arrive in pieces of any size. It does not need
/// to know where a body begins or ends: a head has no empty line, so a head with both fields is
/// always found. A body can at most cause later chunked requests of its own connection to be
/// refused.
pub struct HeadScan {
    /// The field with which the current line may still begin.
    field: Option<&'static [u8]>,
    /// Number of bytes of the field that were seen.
    matched: usize,
    /// The next byte begins a line.
    at_start: bool,
    /// Content-Length was seen since the last empty line; `has_encoding` is the same for
    /// Transfer-Encoding.
    has_length: bool,
    has_encoding: bool,
}

impl Default for HeadScan {
    fn default() -> Self {
        Self { field: None, matched: 0, at_start: true, has_length: false, has_encoding: false }
    }
}

impl HeadScan {
    /// Reads the next bytes, and returns whether they complete the second of the two fields.
    pub fn find(&mut self, mut data: &[u8]) -> bool {
        let mut both = false;
        while let Some(&first) = data.first() {
            if self.at_start {
                self.begin_line(first);
            }
            if let Some(field) = self.field {
                data = self.compare(field, data);
                both |= self.has_length && self.has_encoding;
            }
            self.at_start = skip_line(&mut data);
        }
        both
    }

    fn begin_line(&mut self, first: u8) {
        self.matched = 0;
        self.field = match first {
            b'C' | b'c' => Some(LENGTH),
            b'T' | b't' => Some(ENCODING),
            b'\r' | b'\n' => {
                (self.has_length, self.has_encoding) = (false, false);
                None
            }
            _ => None,
        };
    }

    /// Compares the part of the line that has arrived with the field, and returns the rest of the
    /// data.
    fn compare<'a>(&mut self, field: &[u8], data: &'a [u8]) -> &'a [u8] {
        let wanted = &field[self.matched..];
        // The bit turns capitals into small letters. The other characters that it changes are in no
        // valid field name.
        let same =
            data.iter().zip(wanted).take_while(|(char, want)| **char | 0x20 == **want).count();
        self.matched += same;
        if same == wanted.len() {
            self.has_length |= field == LENGTH;
            self.has_encoding |= field == ENCODING;
            self.field = None;
        } else if same < data.len() {
            self.field = None;
        }
        &data[same..]
    }
}

/// Skips the rest of the line, and returns whether the data has the line's end.
fn skip_line(data: &mut &[u8]) -> bool {
    let line = *data;
    let length = data.skip_until(b'\n').expect("a slice can be read");
    line[..length].ends_with(b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GET: &str = "GET /count HTTP/1.1\r\nHost: lab\r\n\r\n";
    const SIZED: &str = "POST /x HTTP/1.1\r\nHost: lab\r\nContent-Length: 2\r\n\r\n{}";
    const CHUNKED: &str =
        "POST /x HTTP/1.1\r\nHost: lab\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n";

    /// Returns whether both fields are found, and checks that pieces of any size give the same
    /// result.
    fn finds_both(data: &str) -> bool {
        let in_pieces = |size| {
            let mut scan = HeadScan::default();
            data.as_bytes().chunks(size).fold(false, |both, piece| scan.find(piece) | both)
        };
        let whole = in_pieces(data.len());
        for size in 1..data.len() {
            assert_eq!(in_pieces(size), whole, "in pieces of {size} bytes: {data:?}");
        }
        whole
    }

    #[test]
    fn ordinary_requests_on_one_connection_pass() {
        assert!(!finds_both(&[GET, SIZED, CHUNKED, SIZED, SIZED, GET, CHUNKED].concat()));
    }

    #[test]
    fn both_fields_are_found_in_either_order() {
        let length_first = "Content-Length: 3\r\nHost: lab\r\nTransfer-Encoding: chunked";
        let encoding_first = "transfer-encoding:chunked\r\ncontent-length:3";
        for fields in [length_first, encoding_first] {
            let head = format!("POST / HTTP/1.1\r\n{fields}\r\n\r\n");
            assert!(finds_both(&head), "{head:?}");
            assert!(finds_both(&[GET, SIZED, CHUNKED, &head].concat()), "{head:?}");
        }
    }

    #[test]
    fn any_case_and_lines_without_carriage_returns_are_found() {
        assert!(finds_both("POST / HTTP/1.1\ncONTENT-lENGTH: 3\nTRANSFER-encoding: chunked\n\n"));
    }

    #[test]
    fn other_names_pass() {
        for field in ["Content-Lengths: 3", "Content-Type: x", "A: Content-Length: 3", "C: 3"] {
            let head = format!("POST / HTTP/1.1\r\n{field}\r\nTransfer-Encoding: chunked\r\n\r\n");
            assert!(!finds_both(&head), "{head:?}");
        }
    }

    #[test]
    fn a_field_that_is_cut_off_passes() {
        assert!(!finds_both("POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding"));
    }
}
