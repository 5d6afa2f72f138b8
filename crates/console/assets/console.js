// Which nodes are up, until there is more to see.

const words = document.getElementById("words");
const list = document.getElementById("nodes");
const answer = await fetch("/api/stream", { headers: { "kvorum-console": location.hash.slice(1) } });
if (!answer.ok) {
  words.textContent = (await answer.json()).detail;
} else {
  words.textContent = "";
  const decoder = new TextDecoder();
  let rest = "";
  for await (const bytes of answer.body) {
    const events = (rest + decoder.decode(bytes, { stream: true })).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      list.replaceChildren(...JSON.parse(event.slice(6)).nodes.map((node) => {
        const item = document.createElement("li");
        item.textContent = `${node.url}: ${node.state}${node.why ? `, ${node.why}` : ""}`;
        return item;
      }));
    }
  }
  words.textContent = "The console has ended.";
}
