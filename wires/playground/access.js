// The API key: kept for this tab only, and the small form that asks for it.

const KEY_NAME = "polywire.key";
const $ = (id) => document.getElementById(id);

export class Access {
  get key() {
    try {
      return sessionStorage.getItem(KEY_NAME) ?? "";
    } catch {
      return $("key").value; // storage is forbidden: the field itself remembers
    }
  }

  /** Show the key that is kept. */
  show() {
    $("key").value = this.key;
  }

  /** Keep what was entered, and give it. */
  keep() {
    const key = $("key").value.trim();
    try {
      sessionStorage.setItem(KEY_NAME, key);
    } catch {
      // The field itself remembers.
    }
    this.close();
    return key;
  }

  open() {
    $("access").open = true;
    $("key").focus();
  }

  close() {
    if ($("access").contains(document.activeElement)) {
      $("access").querySelector("summary").focus();
    }
    $("access").open = false;
  }
}
