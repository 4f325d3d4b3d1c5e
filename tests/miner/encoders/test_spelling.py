"""The built-in encoder reads texts as people and tools write them: what carries no meaning is normalised by its SentencePiece model."""

import numpy as np
import pytest

from miner.encoders import load_encoder

# (as published, written otherwise): the same pieces
SAME = [
    ("مدرس جديد في المدرسة", "مُدَرِّسٌ جَدِيدٌ فِي الْمَدْرَسَةِ"),  # vowel marks
    ("بيت كبير", "بـــيت كبـير"),  # tatweel
    ("לא", "לֹא"),  # points
    ("הבית הגדול", "הַבַּיִת הַגָּדוֹל"),
    ("السلام", "ﺍﻟﺴﻼﻡ"),  # presentation forms
    ("Full width 12", "Ｆｕｌｌ　ｗｉｄｔｈ １２"),
    ("Tiếng Việt rất đẹp", "Tiê\u0301ng Viê\u0323t râ\u0301t đe\u0323p"),  # decomposed
    ("istanbul", "İSTANBUL"),
    ("été à l’école", "Ã©tÃ© à lâ€™Ã©cole"),  # UTF-8 read as Windows-1252
    ("правительство", "прaвительcтвo"),  # Latin a, c and o
    ("2011 1234", "२०११ ١٢٣٤"),
    ("รัฐบาลประกาศนโยบายใหม่ในวันนี้", "รัฐบาล ประกาศ นโยบาย ใหม่ ใน วันนี้"),  # as segmenters leave Thai, Lao, Khmer and Burmese
    ("ລັດຖະບານປະກາດນະໂຍບາຍໃໝ່", "ລັດຖະບານ ປະກາດ ນະໂຍບາຍ ໃໝ່"),
    ("រដ្ឋាភិបាលប្រកាសគោលនយោបាយថ្មី", "រដ្ឋាភិបាល ប្រកាស គោលនយោបាយ ថ្មី"),
    ("အစိုးရကမူဝါဒသစ်ကြေညာသည်", "အစိုးရ က မူဝါဒ သစ် ကြေညာ သည်"),
]
# The same, but split at other places
CLOSE = [
    ("政府は今日新しい政策を発表した", "政府 は 今日 新しい 政策 を 発表 した"),
    ("Правительство объявило новую политику", "Pravitel'stvo ob'yavilo novuyu politiku"),
    ("Chính phủ công bố chính sách mới vào hôm nay", "Chinh phu cong bo chinh sach moi vao hom nay"),
    ("정부는 오늘 새로운 정책을 발표했다", "정부는오늘새로운정책을발표했다"),
    ("حکومت نے نئی پالیسی کا اعلان کیا", "حكومت نے نئي پاليسي كا اعلان كيا"),
]


@pytest.mark.parametrize(("published", "other"), SAME)
def test_spellings_that_mean_nothing_make_no_difference(published: str, other: str) -> None:
    encoder = load_encoder("builtin")
    vectors = encoder.encode([published, other])
    np.testing.assert_array_equal(vectors[0], vectors[1])
    assert vectors[0].any()


@pytest.mark.parametrize(("published", "other"), CLOSE)
def test_spellings_that_mean_something_are_close(published: str, other: str) -> None:
    first, second = load_encoder("builtin").encode([published, other])
    assert first @ second > 0.6
