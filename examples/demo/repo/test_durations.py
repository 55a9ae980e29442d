import unittest

from durations import parse, render


class ParseTest(unittest.TestCase):
    def test_reads_one_part(self):
        self.assertEqual(parse("45s"), 45)

    def test_reads_several_parts(self):
        self.assertEqual(parse("1h30m"), 5400)

    def test_refuses_rubbish_after_a_part(self):
        with self.assertRaises(ValueError):
            parse("5m later")


class RenderTest(unittest.TestCase):
    def test_is_shortest(self):
        self.assertEqual(render(90_061), "1d1h1m1s")

    def test_of_nothing(self):
        self.assertEqual(render(0), "0s")


if __name__ == "__main__":
    unittest.main()
