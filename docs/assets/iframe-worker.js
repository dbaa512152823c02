/* Search without a server: browsers start no worker from disk, so its script runs in a hidden frame. */
(() => {
  if (location.protocol !== "file:") return;

  class IFrameWorker extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.documentElement.append(frame);
      this.frame = frame;
      const inside = frame.contentWindow;
      inside.postMessage = (data) => this.tell(this, data);
      inside.importScripts = (...urls) => Promise.all(urls.map((one) => this.load(one)));
      this.ready = this.load(url);
    }

    load(url) {
      return new Promise((done, failed) => {
        const inside = this.frame.contentDocument;
        const script = inside.createElement("script");
        script.src = new URL(url, location.href).href;
        script.onload = done;
        script.onerror = failed;
        inside.body.append(script);
      });
    }

    tell(whom, data) {
      const event = new MessageEvent("message", { data });
      whom.dispatchEvent(event);
      if (whom === this && this.onmessage) this.onmessage(event);
    }

    postMessage(data) {
      this.ready.then(() => this.tell(this.frame.contentWindow, data));
    }

    terminate() {
      this.frame.remove();
    }
  }

  window.IFrameWorker = IFrameWorker;
  window.Worker = IFrameWorker;
})();
