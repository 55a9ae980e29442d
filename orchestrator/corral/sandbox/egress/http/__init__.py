"""HTTP/1.x as a proxy speaks it: heads and bodies read strictly, requests judged one by one, secrets put in."""
