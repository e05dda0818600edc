__all__ = ['ttypes', 'constants', 'ProducerService']
