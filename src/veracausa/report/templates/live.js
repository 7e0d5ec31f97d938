const part = document.querySelector("#part"), gone = document.querySelector("#gone");
async function look() {
  try {
    const answer = await fetch("part", { cache: "no-store", credentials: "omit", redirect: "error" });
    if (!answer.ok) throw new Error(answer.status);
    const text = await answer.text();
    // A document of its own, in which no script runs: the server wrote and escaped all of it.
    part.replaceChildren(...new DOMParser().parseFromString(text, "text/html").body.children);
    setTimeout(look, 1000);
  } catch {
    gone.hidden = false;
  }
}
setTimeout(look, 1000);
