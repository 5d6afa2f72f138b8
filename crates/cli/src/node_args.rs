//! How a command is told its nodes: any of several, or the one that it means.

use std::time::{Duration, Instant};

use clap::Args;
use kvorum_config::{NodeUrl, duration, node_url};

use crate::client_nodes::ClientNodes;
use crate::key_file::{ClientKey, client_key};

/// As many as a cluster may have nodes.
const URLS_MAX: usize = 32;

/// What every request takes.
#[derive(Debug, Args)]
pub struct ConnectionArgs {
    /// The file with the client's key, where the node wants one.
    #[arg(long, value_name = "FILE", env = "KVORUM_KEY_FILE", value_parser = client_key)]
    pub key_file: Option<ClientKey>,
    /// Until when an answer has begun, over all nodes that are asked for it; then the longest silence to bear.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = timeout)]
    pub timeout: Duration,
}

/// The nodes of which any may answer.
#[derive(Debug, Args)]
pub struct AnyNodeArgs {
    /// Any nodes of the cluster: the next one is asked where one cannot be reached or answers 503.
    #[arg(
        long,
        value_name = "URL,URL,…",
        env = "KVORUM_URL",
        default_value = "http://127.0.0.1:8080",
        value_parser = url_list
    )]
    pub url: UrlList,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

impl AnyNodeArgs {
    /// To ask them.
    pub(crate) fn nodes(&self) -> ClientNodes {
        ClientNodes::new(self.url.0.clone(), self.connection.key_file.clone(), self.connection.timeout)
    }
}

/// The nodes that are all asked.
#[derive(Debug, Args)]
pub struct EveryNodeArgs {
    /// The nodes to ask, each of them.
    #[arg(
        long,
        value_name = "URL,URL,…",
        env = "KVORUM_URL",
        default_value = "http://127.0.0.1:8080",
        value_parser = url_list
    )]
    pub url: UrlList,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

impl EveryNodeArgs {
    /// In the order of the list.
    pub(crate) fn urls(&self) -> &[NodeUrl] {
        &self.url.0
    }

    /// What they are shown.
    pub(crate) fn key(&self) -> Option<&ClientKey> {
        self.connection.key_file.as_ref()
    }

    /// By when they answer.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.connection.timeout
    }
}

/// The node that is meant.
#[derive(Debug, Args)]
pub struct OneNodeArgs {
    /// The node that is meant.
    #[arg(
        long,
        value_name = "URL",
        env = "KVORUM_URL",
        default_value = "http://127.0.0.1:8080",
        value_parser = one_url
    )]
    pub url: NodeUrl,
    #[command(flatten)]
    pub connection: ConnectionArgs,
}

impl OneNodeArgs {
    /// To ask it.
    pub(crate) fn nodes(&self) -> ClientNodes {
        ClientNodes::new(vec![self.url.clone()], self.connection.key_file.clone(), self.connection.timeout)
    }
}

/// URLs of nodes, each once, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlList(pub(crate) Vec<NodeUrl>);

/// A URL, or `HOST:PORT` for `http://HOST:PORT`.
fn client_url(text: &str) -> Result<NodeUrl, String> {
    let is_bare = !text.contains('/') && text.contains(':');
    let url = if is_bare { node_url(&format!("http://{text}")) } else { node_url(text) };
    url.map_err(|_| "it takes http://HOST:PORT or HOST:PORT, such as http://10.0.0.1:8080".to_owned())
}

/// The URL of a command that means one node.
pub(crate) fn one_url(text: &str) -> Result<NodeUrl, String> {
    if text.contains(',') {
        return Err("this command means one node: name that one with --url URL".to_owned());
    }
    client_url(text)
}

/// The URLs of a command that several nodes may answer, or that is about all.
pub(crate) fn url_list(text: &str) -> Result<UrlList, String> {
    let mut urls = Vec::new();
    for part in text.split(',').map(str::trim) {
        let url = client_url(part).map_err(|allowed| format!("`{part}`: {allowed}; several with commas between"))?;
        if !urls.contains(&url) {
            urls.push(url);
        }
    }
    if urls.len() > URLS_MAX { Err(format!("it takes up to {URLS_MAX} nodes")) } else { Ok(UrlList(urls)) }
}

fn timeout(text: &str) -> Result<Duration, String> {
    duration(text, Duration::from_millis(1), Duration::from_secs(3600)).map_err(|allowed| format!("it takes {allowed}"))
}

#[cfg(test)]
mod tests {
    use super::{one_url, url_list};

    #[test]
    fn a_host_and_a_port_are_a_url_and_a_list_has_each_node_once() {
        let list = |text| url_list(text).map(|list| list.0.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(list("localhost:8080").unwrap(), ["http://localhost:8080"]);
        let several = ["http://b:1", "http://a:80", "http://[::1]:2"];
        assert_eq!(list("b:1, HTTP://a/,[::1]:2,http://b:1").unwrap(), several);
        for wrong in ["", "a:1,", "a:1,,b:1", "localhost", "https://a:1", "a:1/", "ftp://a", "a:0", "a:x"] {
            assert!(url_list(wrong).unwrap_err().contains("HOST:PORT"), "{wrong}");
        }
        let many: Vec<String> = (1..=33).map(|port| format!("a:{port}")).collect();
        assert_eq!(url_list(&many.join(",")), Err("it takes up to 32 nodes".into()));
    }

    #[test]
    fn a_list_is_not_one_node() {
        assert_eq!(one_url("a:1").unwrap().as_str(), "http://a:1");
        assert!(one_url("a:1,b:1").unwrap_err().contains("means one node"));
    }
}
