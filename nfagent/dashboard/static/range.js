// The time range of the charts: the page has them all, and shows those of the range that the reader chose.

const form = document.getElementById("range");

function show() {
  document.documentElement.classList.toggle("is-day", form.elements.namedItem("range").value === "24h");
}

// Takes the choice from the address, and keeps it there.
export function choose() {
  form.elements.namedItem("range").value = new URL(location.href).searchParams.get("range") ?? "";
  form.hidden = false;
  form.addEventListener("change", () => {
    const address = new URL(location.href);
    const { value } = form.elements.namedItem("range");
    if (value) address.searchParams.set("range", value);
    else address.searchParams.delete("range");
    history.replaceState(null, "", address);
    show();
  });
  show();
}
