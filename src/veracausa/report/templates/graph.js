const graph = document.querySelector("#graph svg");
const nodes = [...graph.querySelectorAll(".node")], edges = [...graph.querySelectorAll(".edge")];
function only(node) {
  graph.classList.toggle("dim", node !== null);
  const lit = new Set(node === null ? [] : [node]);
  for (const edge of edges) {
    const ends = edge.dataset.ends.split(" ");
    const touches = node !== null && ends.includes(node);
    edge.classList.toggle("lit", touches);
    if (touches) ends.forEach(end => lit.add(end));
  }
  for (const box of nodes) box.classList.toggle("lit", lit.has(box.dataset.node));
}
for (const box of nodes) {
  box.addEventListener("mouseenter", () => only(box.dataset.node));
  box.addEventListener("mouseleave", () => only(null));
  box.addEventListener("focus", () => only(box.dataset.node));
  box.addEventListener("blur", () => only(null));
}
