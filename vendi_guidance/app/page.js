() => {
  // Ctrl+Enter generates
  document.addEventListener("keydown", event => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    document.querySelector("#generate").click();
  });
  // a reload ends the session, so the browser asks first if images would go
  addEventListener("beforeunload", event => {
    if (document.querySelector(".images .thumbnail-item")) event.preventDefault();
  });
}
